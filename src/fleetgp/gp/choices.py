"""The kernels that a fleet may choose from: one, or several of which held-out data shall tell the best."""

from __future__ import annotations

from collections.abc import Sequence

from fleetgp.errors import InputError, shortened
from fleetgp.gp.expression import as_kernel
from fleetgp.gp.kernels import KERNELS, Kernel

#: What chooses among CANDIDATES, from the smoothest to the roughest.
AUTO = "auto"
CANDIDATES = ("se", "matern52", "matern32", "matern12")

#: One, or those that are compared.
Kernels = tuple[Kernel, ...]


def as_kernels(kernel: object, inputs: int | Sequence[str] | None = None) -> Kernels:
    """A kernel, by name, expression or as itself; "auto"; or a list of kernels to choose from.

    inputs: how many there are, or what they are called.

    >>> [kernel.name for kernel in as_kernels("auto")], [kernel.name for kernel in as_kernels(["se", "matern32"])]
    (['se', 'matern52', 'matern32', 'matern12'], ['se', 'matern32'])
    """
    if isinstance(kernel, str) and kernel == AUTO:
        return tuple(KERNELS[name] for name in CANDIDATES)
    if isinstance(kernel, str | Kernel):
        return (as_kernel(kernel, inputs),)
    if not isinstance(kernel, list | tuple) or not kernel:
        raise InputError(f'expected a kernel, "auto" or a list of kernels, got {shortened(kernel)}')
    found = tuple(as_kernel(one, inputs) for one in kernel)
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise InputError(f"expected different kernels to choose from, got {', '.join(names)}")
    return found
