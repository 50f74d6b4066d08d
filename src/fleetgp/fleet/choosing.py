"""The kernel of a fleet: the one that it was given, or the best of several, once it is trained."""

from __future__ import annotations

from fleetgp.errors import InputError
from fleetgp.gp.choices import Kernels, as_kernels
from fleetgp.gp.kernels import Kernel, as_kernel


class Choosing:
    """kernels: the one that it has, or those that a training chooses from."""

    kernels: Kernels = ()
    _kernel: Kernel | None = None

    def choose_from(self, kernel: object, theta: object) -> None:
        """As a caller gives it. theta: hyperparameters that were given with it."""
        self.kernels = as_kernels(kernel)
        if len(self.kernels) == 1:
            self._kernel = self.kernels[0]
        elif theta is not None:
            raise InputError("theta belongs to one kernel: expected its name, got several to choose from by training")

    def chosen(self, name: str) -> None:
        """The one of this name, by a training; none is named by those of older models, which had one only."""
        self._kernel = next((kernel for kernel in self.kernels if kernel.name == name), self._kernel)

    @property
    def kernel(self) -> Kernel:
        """The one that there is; an error before one was chosen."""
        if self._kernel is None:
            raise InputError("the fleet has yet to choose its kernel: call train first")
        return self._kernel

    @kernel.setter
    def kernel(self, kernel: str | Kernel) -> None:
        self._kernel = as_kernel(kernel)
        if self._kernel not in self.kernels:
            self.kernels = (self._kernel,)
