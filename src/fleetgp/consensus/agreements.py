"""What a fleet agrees on before it trains: scale and mean function, coordinates, box and moments, samples.

Scale, mean and coordinates are sums and extremes over the data of all agents. Moments are sums over the data on a grid
in a box that holds them; no observation and no input is sent (docs/privacy.md says what moments reveal). Samples are
the communication data set of the generalized (g-) methods, D_+i = D_i U D_c.

Means, deviations and extremes over few rows reveal them. So an agent with fewer than `FEWEST_ROWS` sends none: in
agreements on scale, mean and coordinates it takes part with what changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

import numpy as np

from fleetgp.arrays import Array, BoolArray, Keys, occurrences, row_hashes
from fleetgp.consensus.reductions import Reduction, of_fleet
from fleetgp.data.dataset import Dataset
from fleetgp.data.suspicions import scrambled
from fleetgp.data.transforms import AS_GIVEN, CoordinateRule, Coordinates, distortion, local_units
from fleetgp.data.transforms import Scaling as Scaling
from fleetgp.engines.basis import Box
from fleetgp.engines.expert import too_many
from fleetgp.engines.moments.fleet import FleetMoments, moments_on, sizes_for_all
from fleetgp.errors import InputError, NothingToLearnError, check_name
from fleetgp.model.observations import Observations, Summary
from fleetgp.network import MAXIMUM, SUM, Merge, Network
from fleetgp.network.reduction import Finish
from fleetgp.network.wire import LARGEST, check_from_peers

#: The mean function of a model: zero (the paper's), a constant, or a constant and a slope along each input.
MeanName = Literal["zero", "constant", "linear"]
#: An agent with fewer rows contributes nothing to means, deviations and extremes of the fleet, unless all have so few.
FEWEST_ROWS = 5
#: Inputs whose correlations have a smaller eigenvalue than this do not vary independently.
INDEPENDENT = 1e-10
#: In the place of a flag: no agent took part.
NOBODY = -1.0
#: A standard deviation below this share of the mean is rounding.
CONSTANT = 1e-15


def check_mean(name: object) -> MeanName:
    """The name of a mean function, or one clear error."""
    check_name("mean", name, get_args(MeanName))
    return cast(MeanName, name)


def has_enough(rows: int) -> bool:
    """Whether an agent's means, deviations and extremes do not reveal its rows."""
    return rows >= FEWEST_ROWS


def merged_of_enough(
    reduction: Reduction,
    rows: Array,
    counts: Sequence[int],
    merge: Merge,
    nothing: float | Array,
    known: Callable[[Array], bool],
    *,
    finish: Finish | None = None,
    result_shape: tuple[int, ...] | None = None,
) -> Array:
    """The fleet's rows (A, n, ..) -> (n, ..), as `merged`, without those of agents that have too few rows.

    counts: (A,) how many rows the hosted agents have.  nothing: what such an agent sends, which changes nothing.
    known: whether a result is of some agent. If it is of none, all have few rows, and take part in a second reduction.
    """
    enough = np.reshape([has_enough(count) for count in counts], (-1, *[1] * (rows.ndim - 1)))
    first = reduction.merged(np.where(enough, rows, nothing), merge, finish=finish, result_shape=result_shape)
    return first if known(first) else reduction.merged(rows, merge, finish=finish, result_shape=result_shape)


def agree_on_scaling(
    reduction: Reduction,
    shards: Dataset,
    mean: MeanName = "zero",
    *,
    normalize: bool = True,
    learning: bool = False,
) -> Scaling:
    """The mean function by ordinary least squares and, with normalize, the deviation from it, in one reduction.

    With mean="zero" and normalize the fleet's mean and standard deviation. learning: whether a constant target is an
    error, the same at every agent.
    """
    if mean == "linear":
        scaling = _linear(reduction, shards)
        return scaling if normalize else replace(scaling, scale=1.0)
    own = [[float(one.count), one.mean, one.squares] for one in shards.summaries]
    ((count, centre, squares),) = merged_of_enough(
        reduction, np.array(own)[:, None], _counts(shards), DEVIATIONS, 0.0, _counted
    )
    spread = float(np.sqrt(squares / count))
    if learning and normalize and count > 1 and spread <= CONSTANT * abs(centre):
        raise NothingToLearnError("the target of the fleet")
    return Scaling(float(centre), spread if spread > 0.0 and normalize else 1.0)


def _counts(shards: Dataset) -> list[int]:
    return [one.count for one in shards.summaries]


def _counted(total: Array) -> bool:
    """Whether rows of `DEVIATIONS` are of some rows."""
    return bool((total[:, 0] > 0.0).all())


def _linear(reduction: Reduction, shards: Dataset) -> Scaling:
    """By least squares about the centre of all inputs; the root solves, so that all agents hold the same bits."""
    dimension = shards.dimension
    rows = np.stack([_products(one) for one in shards.summaries])[:, None]

    def solved(total: Array, _: object) -> Array:
        count, mean, squares = max(total[0, 0], 1.0), total[0, 1 : dimension + 2], total[0, dimension + 2 :]
        products = squares.reshape(dimension + 1, dimension + 1)
        slope = independent_solution(products[:-1, :-1], products[:-1, -1])
        independent = np.isfinite(slope).all()
        slope = slope if independent else np.zeros(dimension)
        left = products[-1, -1] - slope @ (2.0 * products[:-1, -1] - products[:-1, :-1] @ slope)
        spread = float(np.sqrt(max(left, 0.0) / count))
        known = float(independent) if _counted(total) else NOBODY
        return np.array([[known, mean[-1], spread if spread > 0.0 else 1.0, *slope, *mean[:-1]]])

    (result,) = merged_of_enough(
        reduction,
        rows,
        _counts(shards),
        DEVIATIONS,
        0.0,
        lambda result: bool(result[0, 0] != NOBODY),
        finish=solved,
        result_shape=(3 + 2 * dimension,),
    ).tolist()
    if not result[0]:
        raise InputError(
            'mean="linear" needs inputs that vary independently over the fleet, got one that is constant or follows '
            'from the others: leave it out, or use mean="constant"'
        )
    return Scaling(result[1], result[2], tuple(result[3 : 3 + dimension]), tuple(result[3 + dimension :]))


def independent_solution(matrix: Array, right: Array) -> Array:
    """The solution of matrix x = right for sums of products; NaN where the matrix is singular, whatever its units."""
    size = np.sqrt(np.diagonal(matrix))
    if not (np.isfinite(size).all() and (size > 0.0).all()):
        return np.full(np.shape(right), np.nan)
    correlations = matrix / np.outer(size, size)
    if np.linalg.eigvalsh(correlations)[0] < INDEPENDENT:
        return np.full(np.shape(right), np.nan)
    units = size.reshape(-1, *[1] * (np.ndim(right) - 1))
    return np.asarray(np.linalg.solve(correlations, right / units) / units)


def _products(one: Summary) -> Array:
    """(count, the means of x and y, the sums of products of their deviations) in a row."""
    both = np.block([[one.spread, one.cross[:, None]], [one.cross[None], np.array([[one.squares]])]])
    return np.concatenate([[float(one.count)], one.centre, [one.mean], both.ravel()])


def _merged_deviations(one: Array, other: Array) -> Array:
    """Rows of two data sets as those of both (Chan et al., 1979).

    A row is the count, the means of w columns, and the w^2 sums of products of the deviations from them.

    >>> rows = [np.array([[len(y), y.mean(), ((y - y.mean()) ** 2).sum()]]) for y in np.split(np.arange(6.0), [2])]
    >>> _merged_deviations(*rows).tolist()
    [[6.0, 2.5, 17.5]]
    """
    width = int(np.sqrt(one.shape[-1] - 0.75))  # of 1 + w + w^2 numbers
    n, m = one[..., :1], other[..., :1]
    apart = other[..., 1 : 1 + width] - one[..., 1 : 1 + width]
    share = m / np.where(n + m == 0.0, 1.0, n + m)
    between = (apart[..., :, None] * apart[..., None, :]).reshape(*apart.shape[:-1], width**2)
    mean = one[..., 1 : 1 + width] + apart * share
    return np.concatenate([n + m, mean, one[..., 1 + width :] + other[..., 1 + width :] + between * n * share], axis=-1)


DEVIATIONS = Merge(_merged_deviations, 0.0, finite=True)


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


#: The sizes of the fleet's grid, from what its data are like; None where there is none.
Plan = Callable[[Frame], tuple[int, ...] | None]


def agree_on_frame(
    network: Network, shards: Dataset, plan: Plan, *, central: bool = False
) -> tuple[Frame, tuple[int, ...] | None]:
    """In one reduction: the fleet's frame, and the sizes of its grid, None where there is none.

    The root, or the central node, makes the plan, for all: a power or a logarithm may differ in its last bit between
    processors, and sums on grids of different sizes do not add up.
    """
    dimension = shards.dimension
    own = [[*_outer_corners_of(one), float(one.count), one.mean, one.squares] for one in shards.summaries]

    def planned(total: Array, _: object) -> Array:
        sizes = plan(Frame.read(total[0], dimension)) or (0,) * dimension
        return np.concatenate([total[0], sizes])[None]

    result_shape = (3 * dimension + 3,)
    with network.phase("box"):
        result = of_fleet(network, central=central).merged(
            np.array(own)[:, None], FRAMES, finish=planned, result_shape=result_shape
        )
    frame, sizes = Frame.read(result[0], dimension), tuple(int(size) for size in result[0, -dimension:])
    return frame, None if 0 in sizes else sizes


def reduce_moments(
    network: Network, shards: Dataset, box: Box, sizes: tuple[int, ...], *, central: bool = False
) -> FleetMoments:
    """The moments of all data on a box that holds them, in one reduction. Of new rows alone: what they add."""
    with network.phase("moments"):
        rows = np.stack([moments.packed for moments in shards.moments(box, sizes)])
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
    assert total is not None, "every agent gets the result"
    if total[0, -1] > 0.0:
        return None
    return known.plus(FleetMoments.unpacked(known.box, known.sizes, total[0, :-1]))


def agree_on_moments(
    network: Network, shards: Dataset, theta: Array, *, spare: int = 1, central: bool = False
) -> FleetMoments:
    """The moments for one theta: two reductions. spare: for how many times the observations the grid should do."""
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


def _outer_corners_of(one: Summary) -> Array:
    """The same of all rows of an agent; of none what no rows of others lie below."""
    return outer_corners(one.low, one.high) if one.count else np.full(2 * len(one.low), -LARGEST)


def _merged_frames(one: Array, other: Array) -> Array:
    """Rows (highest, minus lowest, count, mean, squared deviations) of two data sets as those of both."""
    corners = np.maximum(one[..., :-3], other[..., :-3])
    return np.concatenate([corners, DEVIATIONS.function(one[..., -3:], other[..., -3:])], axis=-1)


FRAMES = Merge(_merged_frames, 0.0, finite=True)


#: Degrees of longitude from the centre that a local projection can have at all.
FARTHEST = 90.0
#: The widest longitudes of one agent, and the highest latitude, that it can have.
WIDEST, HIGHEST = 180.0, 89.0
LIMITS = np.array([FARTHEST, WIDEST, HIGHEST, HIGHEST])


def agree_on_coordinates(reduction: Reduction, shards: Dataset, rule: CoordinateRule) -> Coordinates:
    """One reduction for scaled inputs and for the sphere, two for kilometres, none as they are given."""
    if rule.name == "as-given":
        return AS_GIVEN
    if rule.name == "sphere":
        return _sphere(reduction, shards, rule)
    return _scaled(reduction, shards) if rule.name == "scaled" else _local(reduction, shards, rule)


def _scaled(reduction: Reduction, shards: Dataset) -> Coordinates:
    """The mean and the standard deviation of each input."""
    own = [
        np.column_stack([np.full(len(one.centre), float(one.count)), one.centre, np.diagonal(one.spread)])
        for one in shards.summaries
    ]
    total = merged_of_enough(reduction, np.stack(own), _counts(shards), DEVIATIONS, 0.0, _counted)
    count, centre, squares = total.T
    unit = np.sqrt(squares / count)
    return Coordinates("scaled", tuple(centre.tolist()), tuple(np.where(unit > 0.0, unit, 1.0).tolist()))


def _local(reduction: Reduction, shards: Dataset, rule: CoordinateRule) -> Coordinates:
    """Kilometres about the mean of all places; that of longitudes is one of directions, which has no seam."""
    dimension = shards.dimension
    known = shards.summaries_apart(rule.longitude)

    def centre(total: Array, _: object) -> Array:
        count, east, north, latitude = total[0]
        return np.array([[np.degrees(np.arctan2(north, east)), latitude / count if count else np.inf]])

    counts = [one.count for one in known]
    sums = np.stack([_directions(one, rule) for one in known])[:, None]
    ((longitude, latitude),) = merged_of_enough(
        reduction, sums, counts, SUM, 0.0, lambda at: bool(np.isfinite(at).all()), finish=centre, result_shape=(2,)
    ).tolist()

    def judged(total: Array, _: object) -> Array:
        east, _, north, south = total[0].tolist()
        possible = np.isfinite(total).all() and _error(*total[0].tolist()) == ""
        return np.append(total[0], distortion(latitude, -south, north, east) if possible else 0.0)[None]

    reach = np.stack([_reach(one, rule, longitude) for one in known])[:, None]
    beyond = np.where(reach > LIMITS, reach, -np.inf)  # places that cannot be are an error, whoever has them
    (result,) = merged_of_enough(
        reduction,
        reach,
        counts,
        MAXIMUM,
        beyond,
        lambda ends: bool(np.isfinite(ends).all()),
        finish=judged,
        result_shape=(5,),
    ).tolist()
    if refusal := _error(*result[:4]):
        raise InputError(f'coordinates="kilometres": {refusal}')
    origin = [0.0] * dimension
    origin[rule.longitude], origin[rule.latitude] = longitude, latitude
    return Coordinates("kilometres", tuple(origin), local_units(rule, latitude, dimension), rule.longitude, result[4])


def _sphere(reduction: Reduction, shards: Dataset, rule: CoordinateRule) -> Coordinates:
    """Check that all places are on it; every agent learns of one that is not. Other latitudes are not revealed."""
    dimension = shards.dimension
    ends = np.array([[one.high[rule.latitude], -one.low[rule.latitude]] for one in shards.summaries])
    north, south = reduction.maximum(np.where(ends > 90.0, ends, 0.0)).tolist()
    if max(north, south) > 90.0:
        raise InputError(
            f'coordinates="sphere": expected latitudes from -90 to 90, got {north or -south:g}: are the inputs swapped?'
        )
    as_is = (0.0,) * dimension, (1.0,) * dimension
    return Coordinates("sphere", *as_is, rule.longitude, latitude=rule.latitude)


def _directions(one: Summary, rule: CoordinateRule) -> Array:
    """(count, and the sums of cosines and sines of longitude and of latitudes), as if all were at the centre."""
    longitude, latitude = np.radians(one.centre[rule.longitude]), one.centre[rule.latitude]
    return one.count * np.array([1.0, np.cos(longitude), np.sin(longitude), latitude])


def _reach(one: Summary, rule: CoordinateRule, longitude: float) -> Array:
    """How far the longitudes are from the centre, and from each other; the latitudes' end in the north and south.

    Rounded outwards, so that no number is a row's place; within the limits, where the exact ones are.
    """
    if not one.count:
        return np.full(4, -np.inf)
    high, low = np.split(outer_corners(one.low, one.high), 2)
    exact = _ends(one.low, one.high, rule, longitude)
    return np.where(exact <= LIMITS, np.minimum(_ends(-low, high, rule, longitude), LIMITS), exact)


def _ends(low: Array, high: Array, rule: CoordinateRule, longitude: float) -> Array:
    ends = np.array([low[rule.longitude], high[rule.longitude]])
    apart = ends - longitude
    apart -= 360.0 * np.round(apart / 360.0)
    return np.array([np.abs(apart).max(), np.ptp(ends), high[rule.latitude], -low[rule.latitude]])


def _error(east: float, width: float, north: float, south: float) -> str:
    """Why there is no local projection for data that reach so far; empty if there is one."""
    if max(north, south) > 90.0:
        return f"expected latitudes from -90 to 90, got some from {-south:g} to {north:g}: are the inputs swapped?"
    if width > WIDEST:
        return (
            f"expected longitudes of each agent within 180 degrees, got some {width:g} degrees apart: give "
            'coordinates="sphere"; if the data are in files and cross 180 degrees, give longitudes from 0 to 360'
        )
    if east > FARTHEST or max(north, south) > HIGHEST:
        return (
            f"expected places within {FARTHEST:g} degrees of longitude from their centre and below {HIGHEST:g} degrees "
            f"of latitude, got {east:g} and {max(north, south):g}: a plane is no map of them"
        )
    return ""


def sample(data: Observations, agents: int, seed: int) -> Observations:
    """An agent's share of D_c: N_i / M rows, at least one, drawn without replacement.

    They are the first ones in the order of `order_by_place`.

    >>> data = Observations(np.arange(12.0).reshape(6, 2), np.arange(6.0))
    >>> sample(data, agents=3, seed=0).inputs.shape
    (2, 2)
    >>> drawn, turned = (sample(data.rows(slice(None, None, step)), 3, 0).values.tolist() for step in (1, -1))
    >>> sorted(drawn) == sorted(turned)
    True
    """
    count = max(1, len(data) // agents)
    return data.rows(data.drawn(count, seed))


@dataclass(frozen=True)
class Drawn:
    """Everyone's samples, by agent id. rows: (A,) of how many rows of each hosted agent."""

    samples: Sequence[Observations]
    rows: Sequence[int]


def communication_data(
    network: Network,
    shards: Sequence[Observations],
    seed: int,
    *,
    central: bool,
    before: Drawn | None = None,
) -> list[Observations]:
    """Every agent's sample, by agent id, at every agent: along the tree, or over the central node.

    before: what everyone holds of the first rows: only what differs from it is sent.
    """
    nothing = shards[0].rows(slice(0))
    old = [nothing] * network.agents if before is None else list(before.samples)
    changes = []
    for k, (shard, i) in enumerate(zip(shards, network.hosted, strict=True)):
        grown = before is None or len(shard) > before.rows[k]
        changes.append(_change(old[i], sample(shard, network.agents, seed) if grown else old[i]))
    parts = {"inputs": [more.packed for more, _ in changes], "observations": [more.values for more, _ in changes]}
    if before is not None:
        parts["statistics"] = [gone for _, gone in changes]  # rows of the old samples, by their places there
    everyone = _everyones(network, parts, central=central)
    rows = zip(everyone["inputs"], everyone["observations"], strict=True)
    new = [nothing.unpacked(packed, values) for packed, values in rows]
    if before is None:
        return new
    gone = everyone["statistics"]
    check_from_peers(gone, lambda i, rows: bool(np.isin(rows, np.arange(len(old[i]))).all()), "rows of its sample")
    stay = [np.isin(np.arange(len(one)), rows, invert=True) for one, rows in zip(old, gone, strict=True)]
    return [
        Observations.joined([one.rows(kept), more]) if len(more) or not kept.all() else one
        for one, kept, more in zip(old, stay, new, strict=True)
    ]


def _everyones(network: Network, parts: dict[str, list[Array]], *, central: bool) -> dict[str, list[Array]]:
    """The parts of all agents, at every agent."""
    if central:
        everyone = network.gather(parts)
        for kind, values in everyone.items():
            network.scatter(np.concatenate(values), kind)
        return everyone
    collected = network.collect(parts)
    assert collected is not None, "every agent gets the result"
    width, inputs = parts["inputs"][0].shape[1], collected["inputs"]
    check_from_peers(  # an agent without new rows has nothing to send
        inputs, lambda _, x: (x.ndim == 2 and x.shape[1] == width) or not x.size, f"(n, {width}) inputs"
    )
    check_from_peers(collected["observations"], lambda i, y: y.shape == (len(inputs[i]),), "one observation per input")
    return collected


def _change(old: Observations, new: Observations) -> tuple[Observations, Array]:
    """What makes a sample of another: the observations that are new, and the places of those that go."""
    if new is old:
        return old.rows(slice(0)), np.zeros(0)
    more, gone = ~_among(new, old), ~_among(old, new)
    return new.rows(more), np.flatnonzero(gone).astype(float)


def augmented(shard: Observations, agent: int, communication: Sequence[Observations]) -> Observations:
    """The samples of the others and an agent's own data, at the end of which more may come; its own sample is not
    repeated.
    """
    return Observations.joined([*(communication[j] for j in range(len(communication)) if j != agent), shard])


def without(shard: Observations, sample: Observations) -> Observations:
    """An agent's data without the rows of its sample.

    >>> data = Observations(np.arange(8.0).reshape(4, 2), np.arange(4.0))
    >>> without(data, data.rows([3, 1])).values.tolist()
    [0.0, 2.0]
    """
    return shard.rows(~_among(shard, sample))


def _among(some: Observations, others: Observations) -> BoolArray:
    """(N,) which rows are among others; of rows that are alike as many as there are there.

    >>> data = Observations(np.zeros((3, 1)), np.array([1.0, 2.0, 1.0]))
    >>> _among(data, data.rows(slice(2))).tolist()
    [True, True, False]
    """
    return np.isin(_names(some), _names(others))


def _names(shard: Observations) -> Keys:
    """(N,) a number for each row that is the same for the same row, and another one for each that repeats it."""
    hashes = row_hashes(np.column_stack([shard.packed, shard.values]))
    repeats: Keys = scrambled(occurrences(hashes, np.zeros(len(hashes))))
    return np.asarray(np.add(scrambled(hashes), repeats))
