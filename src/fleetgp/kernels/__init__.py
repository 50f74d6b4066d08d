"""Covariance functions: stationary kernels, their sums and products, and the expressions that name them."""

from fleetgp.kernels.stationary import register_kernel

__all__ = ["register_kernel"]
