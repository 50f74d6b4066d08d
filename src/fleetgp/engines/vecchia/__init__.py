"""Each observation given its nearest earlier ones: any kernel, any number of points, approximately."""
