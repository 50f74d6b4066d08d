"""What a model is of: observations, and the noise that they have."""
