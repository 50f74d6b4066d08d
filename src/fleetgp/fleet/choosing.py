"""The kernel of a fleet: the one that it was given, or the best of several, once it is trained."""

from __future__ import annotations

from collections.abc import Sequence

from fleetgp.data.transforms import CoordinateRule, seen_by
from fleetgp.errors import InputError
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.expression import Kernels, as_kernels
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.noise import SAME, NoiseModel
from fleetgp.options import default_kernel

AS_THEY_ARE = CoordinateRule()


class Choosing:
    """kernels: the one that it has, or those that a training chooses from.  noise_model: how the noise differs."""

    kernels: Kernels = ()
    _kernel: Kernel | None = None
    _bound: int | Sequence[str] = 0  # the inputs
    _seen: tuple[CoordinateRule, str] = (AS_THEY_ARE, "zero")

    noise_model: NoiseModel = SAME
    kernel_given: bool = False  # else the default one

    def choose_from(
        self,
        kernel: object,
        inputs: int | Sequence[str],
        theta: object,
        rule: CoordinateRule = AS_THEY_ARE,
        mean: str = "zero",
    ) -> None:
        """As a caller gives it, None for the default. inputs: how many there are, or what they are called.

        theta: hyperparameters that were given with it.  rule, mean: how the model sees the data.
        """
        self._bound, self._seen = inputs, (rule, mean)
        self.kernel_given = kernel is not None
        self.kernels = self._as_seen(default_kernel() if kernel is None else kernel)
        if len(self.kernels) == 1:
            self._kernel = self.kernels[0]
        elif theta is not None:
            raise InputError("theta belongs to one kernel: expected its name, got several to choose from by training")

    def _as_seen(self, kernel: object) -> Kernels:
        rule, mean = self._seen
        seen = seen_by(rule, as_kernels(kernel, self._bound), self._bound, mean)
        return tuple(with_noise(one, self.noise_model) for one in seen)

    def chosen(self, name: str) -> None:
        """The one of this name, by a training; none is named by those of older models, which had one only."""
        self._kernel = self.kernel_called(name)

    def kernel_called(self, name: str) -> Kernel:
        """The one of this name, or the first.

        >>> from fleetgp import Fleet
        >>> Fleet([([[0.0], [1.0]], [1.0, 2.0])], kernel=["se", "matern32"]).kernel_called("matern32").name
        'matern32'
        """
        return next((kernel for kernel in self.kernels if kernel.name == name), self.first_kernel)

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
        (self._kernel,), self.kernel_given = self._as_seen(kernel), True
        if self._kernel not in self.kernels:
            self.kernels = (self._kernel,)
