"""The local Gaussian process of one agent: hyperparameters, kernels, and an expert over its engines."""
