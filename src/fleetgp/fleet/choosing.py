"""The kernel of a fleet: the one that it was given, or the best of several, once it is trained."""

from __future__ import annotations

from collections.abc import Sequence

from fleetgp.errors import InputError
from fleetgp.gp.choices import Kernels, as_kernels
from fleetgp.gp.composite import with_noise
from fleetgp.gp.kernels import Kernel
from fleetgp.gp.noise import SAME, Noise


class Choosing:
    """kernels: the one that it has, or those that a training chooses from.  noises: how the noise differs."""

    kernels: Kernels = ()
    _kernel: Kernel | None = None
    _bound: int | Sequence[str] = 0  # the inputs

    noises: Noise = SAME

    def choose_from(self, kernel: object, inputs: int | Sequence[str], theta: object) -> None:
        """As a caller gives it. inputs: how many there are, or what they are called.

        theta: hyperparameters that were given with it.
        """
        self._bound = inputs
        self.kernels = self._noisy(as_kernels(kernel, inputs))
        if len(self.kernels) == 1:
            self._kernel = self.kernels[0]
        elif theta is not None:
            raise InputError("theta belongs to one kernel: expected its name, got several to choose from by training")

    def _noisy(self, kernels: Kernels) -> Kernels:
        return tuple(with_noise(kernel, self.noises) for kernel in kernels)

    def chosen(self, name: str) -> None:
        """The one of this name, by a training; none is named by those of older models, which had one only."""
        self._kernel = next((kernel for kernel in self.kernels if kernel.name == name), self._kernel)

    @property
    def first_kernel(self) -> Kernel:
        """The one that there is, or the first of those to choose from."""
        return self._kernel or self.kernels[0]

    @property
    def kernel(self) -> Kernel:
        """The one that there is; an error before one was chosen."""
        if self._kernel is None:
            raise InputError("the fleet has yet to choose its kernel: call train first")
        return self._kernel

    @kernel.setter
    def kernel(self, kernel: str | Kernel) -> None:
        (self._kernel,) = self._noisy(as_kernels(kernel, self._bound))
        if self._kernel not in self.kernels:
            self.kernels = (self._kernel,)
