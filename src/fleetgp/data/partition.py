"""Splits of rows over the agents of a fleet, or into folds that are hidden in turn.

Folds are made of pieces, each of which is hidden once. A piece is one of two things:

"rows": every row is a piece, numbered at random. A hidden row has neighbours that are not hidden: this measures how
    good the model is among the data.
"blocks": a piece is all rows in one cell of a box, so a hidden fold leaves gaps as large as a cell: this measures how
    good the model is in gaps. The cells are the Voronoi cells of random points in the box, in units of the box: compact
    in any number of dimensions, where a grid would have too many. The points depend only on the seed. On the box of the
    whole fleet all agents hide the same places, so that nobody observes them; on its own box an agent hides pieces of
    its own area, without asking others.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args, overload

import numpy as np
import scipy
from numpy.typing import NDArray

from fleetgp.arrays import Array, BoolArray, IntArray, order_by_place
from fleetgp.errors import InputError, check_name, shortened, warn
from fleetgp.validation import as_numbers, check_aligned, check_finite, check_whole, column_names, is_nothing

Shard = tuple[Array, Array]
#: A shard with the known standard deviation of each observation.
KnownShard = tuple[Array, Array, Array]
By = Literal["stripes", "grid", "kmeans", "random"]
BY: tuple[By, ...] = get_args(By)
Hold = Literal["rows", "blocks"]
HOLDS: tuple[Hold, ...] = get_args(Hold)
#: Each fold hides about a fifth of the rows.
FOLDS = 5
#: An agent with fewer rows hides none.
FEWEST = 20


@overload
def partition(
    X: object, y: object, s: None = None, *, agents: int, by: By = "stripes", axis: int = 0, seed: int = 0
) -> list[Shard]: ...


@overload
def partition(
    X: object, y: object, s: object, *, agents: int, by: By = "stripes", axis: int = 0, seed: int = 0
) -> list[KnownShard]: ...


def partition(
    X: object, y: object, s: object = None, *, agents: int, by: By = "stripes", axis: int = 0, seed: int = 0
) -> list[Shard] | list[KnownShard]:
    """Split rows over agents; return a list of (X_i, y_i), one per agent.

    s: (N,) the known standard deviations of the observations: then the list has (X_i, y_i, s_i).
    by: "stripes" along an input axis (the paper's layout); "grid", cells over the first two axes, as square as the
        number of agents allows; "kmeans", the points around each agent's own centre; "random". All but "kmeans" give
        every agent equally many points, up to one.
    axis: of the stripes.  seed: of "kmeans" and "random".

    The parts of a data frame are data frames, whose columns keep their names.

    >>> shards = partition([[0.3], [0.1], [0.2], [0.4]], [3, 1, 2, 4], agents=2)
    >>> [y.tolist() for _, y in shards]
    [[1.0, 2.0], [3.0, 4.0]]
    """
    check_aligned(X, y, "", ("X", "y"))
    inputs, observations = _checked(X, y)
    check_whole("agents", agents, least=0)
    check_whole("seed", seed, least=0)
    if not 1 <= agents <= len(inputs):
        raise InputError(f"agents must lie between 1 and the {len(inputs)} points, got {agents}")
    check_name("partition", by, BY)
    if not isinstance(axis, int | np.integer) or isinstance(axis, bool):
        raise InputError(f"axis must name one of the {inputs.shape[1]} input dimensions, got {shortened(axis)}")
    if axis != 0 and by != "stripes":
        raise InputError(f"axis is for stripes, got by={by!r}: leave one of them out")
    return _parts(X, inputs, observations, s, _split(inputs, agents, by, axis, seed))


@overload
def partition_by_label(
    X: object, y: object, labels: Sequence[object] | NDArray[Any] | None, s: None = None
) -> tuple[list[str], list[Shard]]: ...


@overload
def partition_by_label(
    X: object, y: object, labels: Sequence[object] | NDArray[Any] | None, s: object
) -> tuple[list[str], list[KnownShard]]: ...


def partition_by_label(
    X: object, y: object, labels: Sequence[object] | NDArray[Any] | None, s: object = None
) -> tuple[list[str], list[Shard] | list[KnownShard]]:
    """Split rows by labels; return the agents' names, in the order of their first rows, and their (X_i, y_i).

    labels: (N,), one per row, for example `ObservationTable.labels`; None, if a table has none, is an error.
    s: as in `partition`.

    >>> names, shards = partition_by_label([[0.0], [1.0], [2.0]], [1, 2, 3], ["b", "a", "b"])
    >>> names, [y.tolist() for _, y in shards]
    (['b', 'a'], [[1.0, 3.0], [2.0]])
    """
    check_aligned(X, y, "", ("X", "y"))
    if labels is None:
        raise InputError("labels: expected one per row, got None: name the column (agent=..), or split by partition")
    check_aligned(X, labels, "", ("X", "labels"))
    if not hasattr(X, "iloc"):
        check_aligned(y, labels, "", ("y", "labels"))
    inputs, observations = _checked(X, y)
    if getattr(labels, "ndim", 1) != 1 or not isinstance(labels, Iterable) or isinstance(labels, str | bytes):
        raise InputError(f"expected one label per row ({len(observations)}), got {shortened(labels)}")
    missing = [row for row, label in enumerate(labels) if not is_present(label)]
    if missing:
        raise InputError(
            f"labels: {len(missing)} are missing (first: row {missing[0]}): remove these rows, or name them"
        )
    names = np.array([str(label).strip() for label in labels])
    warn_of_blanks(labels)
    if names.shape != observations.shape:
        raise InputError(f"expected one label per row ({len(observations)}), got {len(names)}")
    order = list(dict.fromkeys(names.tolist()))
    rows = [np.flatnonzero(names == name) for name in order]
    return order, _parts(X, inputs, observations, s, rows)


def warn_of_blanks(labels: Iterable[object]) -> None:
    """Warn of labels that differ only by blanks, and are taken as one agent."""
    by_name: dict[str, set[str]] = {}
    for label in labels:
        if isinstance(label, str):
            by_name.setdefault(label.strip(), set()).add(label)
    for name, spellings in sorted(by_name.items()):
        if len(spellings) > 1:
            warn(
                f"labels: {' and '.join(map(repr, sorted(spellings)))} differ by blanks at the ends only, and are "
                f"taken as one agent, {name!r}: rename one of them if they are two"
            )


def is_present(label: object) -> bool:
    """Whether a label is a name: not None, NaN, pandas' NA, masked or blank."""
    return not is_nothing(label) and label == label and str(label).strip() != ""


def _checked(X: object, y: object) -> Shard:
    inputs, observations = as_numbers(X, "X"), as_numbers(y, "y")
    if inputs.ndim != 2 or observations.shape != inputs.shape[:1]:
        raise InputError(f"expected X of shape (N, D) and y of shape (N,), got {inputs.shape} and {observations.shape}")
    check_finite(inputs, "X")
    check_finite(observations, "y")
    return inputs, observations


def _parts(
    X: object, inputs: Array, observations: Array, s: object, rows: Sequence[IntArray]
) -> list[Shard] | list[KnownShard]:
    if s is None:
        return [(_part(X, inputs, own), observations[own]) for own in rows]
    check_aligned(X, s, "", ("X", "s"))
    known = as_numbers(s, "s")
    if known.shape != observations.shape:
        raise InputError(f"s: expected a standard deviation for each of {len(observations)} rows, got {known.shape}")
    return [(_part(X, inputs, own), observations[own], known[own]) for own in rows]


def _part(X: Any, inputs: Array, rows: IntArray) -> Any:
    """Select rows; those of a data frame with names stay a data frame, so that columns cannot be confused."""
    return X.iloc[rows] if column_names(X, "X") is not None and hasattr(X, "iloc") else inputs[rows]


def _split(inputs: Array, agents: int, by: str, axis: int, seed: int) -> list[IntArray]:
    if by == "stripes":
        if not -inputs.shape[1] <= axis < inputs.shape[1]:
            raise InputError(f"axis must name one of the {inputs.shape[1]} input dimensions, got {axis!r}")
        return _stripes(inputs[:, axis], np.arange(len(inputs)), [1] * agents)
    if by == "grid":
        return _cells(inputs, agents)
    if by == "kmeans":
        return _clusters(inputs, agents, seed)
    return np.array_split(np.random.default_rng(seed).permutation(len(inputs)), agents)  # at random


def _stripes(values: Array, rows: IntArray, shares: Sequence[int]) -> list[IntArray]:
    """Sort rows by their values, and cut them into parts proportional to their shares."""
    ordered = rows[np.argsort(values[rows], kind="stable")]
    total = int(np.sum(shares))
    sizes = [len(part) for part in np.array_split(ordered, total)]
    ends = np.cumsum([sum(sizes[a:b]) for a, b in pairwise(np.cumsum([0, *shares]).tolist())])
    return np.split(ordered, ends[:-1])


def _cells(inputs: Array, agents: int) -> list[IntArray]:
    if inputs.shape[1] < 2:
        return _stripes(inputs[:, 0], np.arange(len(inputs)), [1] * agents)
    columns = max(1, round(agents**0.5))
    counts = [len(part) for part in np.array_split(np.arange(agents), columns)]
    result: list[IntArray] = []
    for rows, count in zip(_stripes(inputs[:, 0], np.arange(len(inputs)), counts), counts, strict=True):
        result += _stripes(inputs[:, 1], rows, [1] * count)
    return result


def _clusters(inputs: Array, agents: int, seed: int) -> list[IntArray]:
    """Cluster by k-means from well-spread centres, so that every agent has a point."""
    from scipy.cluster.vq import kmeans2  # takes a while, and few need it

    if len(np.unique(inputs, axis=0)) <= agents:  # fewer places than centres
        return np.array_split(np.lexsort(inputs.T), agents)
    scale = np.where(np.ptp(inputs, axis=0) > 0.0, inputs.std(axis=0), 1.0)
    scaled = inputs / scale
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about empty clusters, which get a point below
        _, nearest = kmeans2(scaled, agents, minit="++", rng=np.random.default_rng(seed), iter=50)
    for empty in sorted(set(range(agents)) - set(nearest.tolist())):
        largest = np.bincount(nearest, minlength=agents).argmax()
        nearest[np.flatnonzero(nearest == largest)[0]] = empty
    return [np.flatnonzero(nearest == agent) for agent in range(agents)]


# ---- folds ----------------------------------------------------------------------------------------------------------


def row_pieces(inputs: Array, observations: Array, seed: int, folds: int = 2 * FOLDS) -> IntArray:
    """Return (N,) a number for every row, which depends only on where the rows lie and on the seed.

    folds: the number modulo this is the fold. Rows that are adjacent in `order_by_place` have the same fold where
    possible, so that few rows change folds where small changes of the data change that order.

    >>> sorted(row_pieces(np.arange(8.0).reshape(4, 2), np.zeros(4), seed=0).tolist())
    [0, 1, 2, 3]
    """
    numbers, result = np.arange(len(observations)), np.empty(len(observations), dtype=np.int64)
    result[order_by_place(inputs, observations, seed)] = numbers[np.argsort(numbers % folds, kind="stable")]
    return result


def block_pieces(inputs: Array, low: Array, high: Array, cells: int, seed: int) -> IntArray:
    """Return (N,) the number of the cell that each row is in.

    low, high: (D,) corners of the box.  cells: how many the box has; in two dimensions each is about 1 / sqrt(cells) of
    the box wide.

    >>> X = np.array([[0.1, 0.1], [0.11, 0.1], [0.9, 0.8]])
    >>> first, second, third = block_pieces(X, np.zeros(2), np.ones(2), cells=20, seed=1).tolist()
    >>> first == second, first == third
    (True, False)
    """
    width = np.where(high > low, high - low, 1.0)
    centres = np.random.default_rng(seed).random((cells, inputs.shape[1]))
    return np.asarray(scipy.spatial.cKDTree(centres).query((inputs - low) / width)[1])


def hidden(pieces: IntArray, fold: int, folds: int = FOLDS) -> BoolArray:
    """Return (N,) which rows an agent hides in a fold: none of few rows, and never all.

    >>> [int(hidden(pieces, 0).sum()) for pieces in (np.arange(20), np.zeros(20, dtype=int), np.arange(19))]
    [4, 19, 0]
    """
    result = pieces % folds == fold
    if len(pieces) < FEWEST:
        result[:] = False
    elif result.all():
        result[0] = False
    return np.asarray(result)


def second_half(pieces: IntArray) -> BoolArray:
    """Return (N,) which rows are in the second of two halves; the halves have no piece in common in any fold."""
    return np.asarray(pieces % 2 == 1)


def lattice(low: Array, high: Array, count: int) -> Array:
    """Return (count, D) places all over a box, the first points of Halton's sequence.

    >>> lattice(np.zeros(2), np.array([1.0, 2.0]), 3).round(3).tolist()
    [[0.5, 0.667], [0.25, 1.333], [0.75, 0.222]]
    """
    from scipy.stats.qmc import Halton  # takes as long to load as all of the rest of an agent's imports

    return np.asarray(low + (high - low) * Halton(len(low), scramble=False).random(count + 1)[1:])


def drawn(rows: IntArray, most: int, inputs: Array, observations: Array, seed: int) -> IntArray:
    """Draw at most this many row numbers, by where the rows lie and the seed; return them in increasing order.

    inputs, observations: of all rows.

    >>> X, y = np.arange(20.0).reshape(10, 2), np.zeros(10)
    >>> len(drawn(np.arange(10), 4, X, y, seed=0)), drawn(np.array([3, 8]), 4, X, y, seed=0).tolist()
    (4, [3, 8])
    """
    if len(rows) <= most:
        return rows
    return np.sort(rows[order_by_place(inputs[rows], observations[rows], seed)[:most]])
