"""The moments of all data of a fleet, at every agent or at a central node: a box, and sums over the data on it, each
in one reduction.

No observation and no input is sent. What moments tell of them is in docs/privacy.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.reductions import of_fleet
from fleetgp.consensus.scaling import DEVIATIONS
from fleetgp.data.streamed import dimension_of, moments_of, summaries_of
from fleetgp.gp.basis import Box
from fleetgp.gp.fleet_expert import too_many
from fleetgp.gp.moments.fleet import FleetMoments, moments_on
from fleetgp.gp.moments.sizes import sizes_for_all
from fleetgp.model.observations import Observations
from fleetgp.network import Merge, Network

#: An agent rounds the corners of its box outwards to this part of its width, rounded up to a power of two: so the faces
#: of the fleet's box are nobody's inputs.
STEP = 2.0**-5
#: A grid that must also do for rows that come is made for so many times those that there are.
SPARE = 4
#: The width of the data of an agent whose inputs do not differ along an axis, against their distance from the origin.
NARROW, ORIGIN = 2.0**-10, 2.0**-400


@dataclass(frozen=True)
class Frame:
    """What the fleet's data are like, in the units of the data: their box, how many there are, mean and deviation."""

    box: Box
    count: int
    mean: float
    deviation: float

    @classmethod
    def read(cls, row: Array, dimension: int) -> Frame:
        """From a row of the reduction."""
        high, low = row[:dimension], -row[dimension : 2 * dimension]
        count, mean, squares = row[2 * dimension : 2 * dimension + 3].tolist()
        return cls(Box.around(np.stack([high, low])), round(count), mean, float(np.sqrt(squares / count)))


#: The sizes of the grid that the fleet shall have, from what its data are like; None where there is none.
Plan = Callable[[Frame], tuple[int, ...] | None]


def agree_on_frame(
    network: Network, shards: Sequence[Observations], plan: Plan, *, central: bool = False
) -> tuple[Frame, tuple[int, ...] | None]:
    """In one reduction: the fleet's frame, and the sizes of its grid, None where there is none.

    The root, or the central node, makes the plan, for all: a power or a logarithm may differ in its last bit between
    processors, and sums on grids of different sizes do not add up.
    """
    dimension = dimension_of(shards)
    own = [[*outer_corners(one.low, one.high), float(one.count), one.mean, one.squares] for one in summaries_of(shards)]

    def planned(total: Array, _: object) -> Array:
        sizes = plan(Frame.read(total[0], dimension)) or (0,) * dimension
        return np.concatenate([total[0], sizes])[None]

    told = (3 * dimension + 3,)
    with network.phase("box"):
        found = of_fleet(network, central=central).merged(np.array(own)[:, None], FRAMES, finish=planned, told=told)
    frame, sizes = Frame.read(found[0], dimension), tuple(int(size) for size in found[0, -dimension:])
    return frame, None if 0 in sizes else sizes


def reduce_moments(
    network: Network, shards: Sequence[Observations], box: Box, sizes: tuple[int, ...], *, central: bool = False
) -> FleetMoments:
    """The moments of all data on a box that holds them, in one reduction. Of new rows alone: what they add."""
    with network.phase("moments"):
        rows = np.stack([found.packed for found in moments_of(shards, box, sizes)])
        total = of_fleet(network, central=central).whole(rows, "moments")
    return FleetMoments.unpacked(box, sizes, total)


def grown_moments(network: Network, known: FleetMoments, more: Sequence[Observations]) -> FleetMoments | None:
    """Moments that all agents hold, with those of rows that have come since, in one reduction.

    None where somebody's new rows lie outside of the box. Nothing comes from parts of the tree without new rows.
    """
    rows = []
    for data in more:
        inside = known.box.holds(data.inputs)
        some = slice(None if inside else 0)
        added = moments_on(known.box, known.sizes, data.inputs[some], data.values[some])
        rows.append(np.append(added.packed, float(not inside)))
    present = np.array([[len(data) > 0] for data in more])
    with network.phase("moments"):
        total = network.reduce_present(np.stack(rows)[:, None], present, "moments").value
    assert total is not None, "all agents are told"
    if total[0, -1] > 0.0:
        return None
    return known.plus(FleetMoments.unpacked(known.box, known.sizes, total[0, :-1]))


def agree_on_moments(
    network: Network, shards: Sequence[Observations], theta: Array, *, spare: int = 1, central: bool = False
) -> FleetMoments:
    """The moments for one theta: two reductions. spare: the grid shall do for so many times the observations."""
    ratio = float((theta[-2] / theta[-1]) ** 2) if theta[-1] > 0.0 else np.inf

    def plan(frame: Frame) -> tuple[int, ...] | None:
        count = spare * frame.count
        return sizes_for_all([frame.box.half / theta[:-2]], [ratio], count) if np.isfinite(ratio) else None

    frame, sizes = agree_on_frame(network, shards, plan, central=central)
    if sizes is None:
        raise too_many(theta)
    return reduce_moments(network, shards, frame.box, sizes, central=central)


def outer_corners(low: Array, high: Array) -> Array:
    """(2 D,) the highest and minus the lowest coordinates, rounded outwards: never quite an input.

    >>> outer_corners(np.array([0.0, 5.0]), np.array([1.5, 5.0])).tolist()
    [1.5625, 5.000244140625, 0.0625, -4.999755859375]
    """
    width, size = high - low, np.maximum(np.abs(high), np.abs(low))
    width = np.where(width > 0.0, width, np.maximum(NARROW * size, ORIGIN))
    step = np.maximum(STEP * np.exp2(np.ceil(np.log2(width))), 4.0 * np.spacing(size))
    return np.concatenate([(np.floor(high / step) + 1.0) * step, (np.floor(-low / step) + 1.0) * step])


def _merged_frames(one: Array, other: Array) -> Array:
    """Rows (highest, minus lowest, count, mean, squared deviations) of two data sets as those of both."""
    corners = np.maximum(one[..., :-3], other[..., :-3])
    return np.concatenate([corners, DEVIATIONS.function(one[..., -3:], other[..., -3:])], axis=-1)


FRAMES = Merge(_merged_frames, 0.0, finite=True)
