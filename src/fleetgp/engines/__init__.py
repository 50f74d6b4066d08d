"""The local Gaussian process of one agent: an expert over its engines."""
