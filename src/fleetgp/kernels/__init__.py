"""Covariance functions: stationary kernels, their sums and products, and the expressions that name them."""
