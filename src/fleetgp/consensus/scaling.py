"""The scale of the observations and their mean function, agreed by the fleet before anything is modelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, cast, get_args

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.reductions import Reduction
from fleetgp.data.scaling import Scaling as Scaling
from fleetgp.data.streamed import dimension_of, summaries_of
from fleetgp.data.summary import Summary
from fleetgp.errors import InputError, NothingToLearnError, check_name
from fleetgp.model.observations import Observations
from fleetgp.network import Merge

#: The mean function of a model: zero (the paper's), a constant, or a constant and a slope along each input.
MeanName = Literal["zero", "constant", "linear"]
#: Inputs whose correlations have a smaller eigenvalue than this do not vary independently.
INDEPENDENT = 1e-10
#: A standard deviation below this share of the mean is rounding.
CONSTANT = 1e-15


def check_mean(name: object) -> MeanName:
    """The name of a mean function, or one clear error."""
    check_name("mean", name, get_args(MeanName))
    return cast(MeanName, name)


def agree_on_scaling(
    reduction: Reduction,
    shards: Sequence[Observations],
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
        found = _linear(reduction, shards)
        return found if normalize else replace(found, scale=1.0)
    own = [[float(one.count), one.mean, one.squares] for one in summaries_of(shards)]
    ((count, centre, squares),) = reduction.merged(np.array(own)[:, None], DEVIATIONS)
    spread = float(np.sqrt(squares / count))
    if learning and normalize and count > 1 and spread <= CONSTANT * abs(centre):
        raise NothingToLearnError("the target of the fleet")
    return Scaling(float(centre), spread if spread > 0.0 and normalize else 1.0)


def _linear(reduction: Reduction, shards: Sequence[Observations]) -> Scaling:
    """By least squares about the centre of all inputs; the root solves, so that all agents hold the same bits."""
    dimension = dimension_of(shards)
    rows = np.stack([_products(one) for one in summaries_of(shards)])[:, None]

    def solved(total: Array, _: object) -> Array:
        count, mean, squares = total[0, 0], total[0, 1 : dimension + 2], total[0, dimension + 2 :]
        products = squares.reshape(dimension + 1, dimension + 1)
        slope = independent_solution(products[:-1, :-1], products[:-1, -1])
        independent = np.isfinite(slope).all()
        slope = slope if independent else np.zeros(dimension)
        left = products[-1, -1] - slope @ (2.0 * products[:-1, -1] - products[:-1, :-1] @ slope)
        spread = float(np.sqrt(max(left, 0.0) / count))
        return np.array([[float(independent), mean[-1], spread if spread > 0.0 else 1.0, *slope, *mean[:-1]]])

    (found,) = reduction.merged(rows, PRODUCTS, finish=solved, told=(3 + 2 * dimension,)).tolist()
    if not found[0]:
        raise InputError(
            'mean="linear" needs inputs that vary independently over the fleet, got one that is constant or follows '
            'from the others: leave it out, or use mean="constant"'
        )
    return Scaling(found[1], found[2], tuple(found[3 : 3 + dimension]), tuple(found[3 + dimension :]))


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
    """Rows (count, mean, sum of squared deviations from it) of two data sets as those of both (Chan et al., 1979).

    >>> rows = [np.array([[len(y), y.mean(), ((y - y.mean()) ** 2).sum()]]) for y in np.split(np.arange(6.0), [2])]
    >>> _merged_deviations(*rows).tolist()
    [[6.0, 2.5, 17.5]]
    """
    (n, mean, squares), (m, other_mean, other_squares) = np.moveaxis(one, -1, 0), np.moveaxis(other, -1, 0)
    count, apart = n + m, other_mean - mean
    share = m / np.where(count == 0.0, 1.0, count)
    return np.stack([count, mean + apart * share, squares + other_squares + apart**2 * n * share], axis=-1)


def _merged_products(one: Array, other: Array) -> Array:
    """The same of several columns: rows (count, means, sums of products of the deviations from them).

    >>> rows = [np.array([[len(y), y.mean(), ((y - y.mean()) ** 2).sum()]]) for y in np.split(np.arange(6.0), [2])]
    >>> _merged_products(*rows).tolist()
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
PRODUCTS = Merge(_merged_products, 0.0, finite=True)
