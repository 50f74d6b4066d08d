"""Kernels on the whole globe: of chords, with one length-scale, in kilometres, for longitude and latitude.

The place is three coordinates: two stand where longitude and latitude were, the third behind all inputs. A kernel that
is valid in space is valid for chords, everywhere on the sphere; one of great circles is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleetgp.data.coordinates import CoordinateRule
from fleetgp.data.streamed import Streamed
from fleetgp.errors import InputError
from fleetgp.gp.choices import Kernels
from fleetgp.gp.composite import Composite
from fleetgp.gp.kernels import Kernel
from fleetgp.gp.leaves import Leaf, Scaled
from fleetgp.model.observations import Observations


def seen_by(rule: CoordinateRule, kernels: Kernels, inputs: int | Sequence[str], mean: str = "zero") -> Kernels:
    """The kernels in the coordinates of a model, or one clear error.

    inputs: how many there are, or what they are called.

    >>> from fleetgp.gp.choices import as_kernels
    >>> names, rule = ("lon", "lat", "day"), CoordinateRule("sphere", 0, 1)
    >>> (kernel,) = seen_by(rule, as_kernels("iso-matern32(lon, lat) * matern12(day)", names), names)
    >>> kernel.leaves[0].axes, kernel.names(names)
    ((0, 1, 3), ('l_lon_lat', 'l_day', 'sigma_f', 'sigma_eps'))
    """
    if rule.name != "sphere":
        return kernels
    if mean == "linear":
        raise InputError(
            'mean="linear" goes along longitude and latitude, which have seams on the sphere: expected mean="zero" or '
            '"constant", or coordinates="kilometres"'
        )
    third = inputs if isinstance(inputs, int) else len(inputs)
    names = [str(d + 1) for d in range(third)] if isinstance(inputs, int) else list(inputs)
    return tuple(_on_sphere(kernel, rule, third, names) for kernel in kernels)


def refuse_files(rule: CoordinateRule, shards: Sequence[Observations]) -> None:
    """One clear error for data that are known by their sums, which are of longitudes and latitudes."""
    if rule.name == "sphere" and isinstance(shards, Streamed):
        raise InputError('coordinates="sphere" needs data in memory, got files: load them, or use "kilometres"')


def _on_sphere(kernel: Kernel, rule: CoordinateRule, third: int, names: Sequence[str]) -> Kernel:
    if not isinstance(kernel, Composite):
        raise _error(kernel, rule, names)
    leaves = []
    for one in kernel.leaves:
        if not {rule.longitude, rule.latitude} & {*one.axes}:
            leaves.append(one)
        elif isinstance(one, Scaled) and one.alike and {*_told(one)} == {rule.longitude, rule.latitude}:
            leaves.append(replace(one, axes=(*_told(one), third), named=_told(one)))
        else:
            raise _error(kernel, rule, names)
    return replace(kernel, leaves=tuple(leaves))


def _told(one: Leaf) -> tuple[int, ...]:
    """The inputs that a leaf is written with."""
    return one.named if isinstance(one, Scaled) and one.named else one.axes


def _error(kernel: Kernel, rule: CoordinateRule, names: Sequence[str]) -> InputError:
    pair = f"{names[rule.longitude]}, {names[rule.latitude]}"
    return InputError(
        f'coordinates="sphere": expected one length-scale for {pair} wherever a kernel looks at them, got '
        f"{kernel.name!r}: write iso-matern32({pair}), say, times or plus kernels of other inputs"
    )
