"""The moments of several agents' data are those of all data, and an engine has the GP of all data from them."""

from __future__ import annotations

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.consensus.agreements import agree_on_moments, outer_corners, reduce_moments
from fleetgp.engines.basis import Box
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.expert import FleetExpert
from fleetgp.engines.moments.engine import SumsEngine
from fleetgp.engines.moments.fleet import FleetMoments, finest_reach, response_sizes, sizes_for_all
from fleetgp.engines.moments.sums import ChebyshevSums
from fleetgp.model.observations import Observations
from tests.conftest import paper_shards
from tests.engines.moments.problems import SE, THETA, places
from tests.shared import observed

SHARDS = paper_shards(400, 5)
POOL = Observations.joined(observed(SHARDS))


def moments(theta: Array = THETA) -> FleetMoments:
    return agree_on_moments(fg.InProcess(fg.Graph.cycle(5)), observed(SHARDS), theta)


def test_they_are_the_sums_over_all_data() -> None:
    """Against cosines of the angles of every row."""
    found, x, y = moments(), POOL.inputs, POOL.values
    assert found.count == 400
    assert found.squares == pytest.approx(y @ y, rel=1e-12)
    angles = np.arccos(found.box.positions(x))
    first, second = (np.cos(np.arange(size)[:, None] * a) for size, a in zip(found.sizes, angles.T, strict=True))
    np.testing.assert_allclose(found.sums, first @ second.T, atol=1e-9)
    high, low = response_sizes(found.sizes)
    np.testing.assert_allclose(found.responses, (first[:high] * y) @ second[:low].T, atol=1e-9)


@pytest.mark.parametrize("theta", [THETA, np.array([0.6, 0.5, 2.0, 0.3]), np.array([3.0, 2.0, 1.0, 0.05])])
def test_likelihood_and_posterior_are_those_of_the_pooled_data(theta: Array) -> None:
    dense, whole = DenseEngine(POOL, SE, 0), SumsEngine(moments(theta), 0)
    expected, found = dense.evaluate(np.log(theta)), whole.evaluate(np.log(theta))
    assert found is not None
    assert found.nll == pytest.approx(expected.nll, abs=1e-6)
    np.testing.assert_allclose(found.gradient, expected.gradient, atol=1e-4)
    queries = np.random.default_rng(0).uniform(-0.3, 2.3, (40, 2))  # some outside the box
    posterior = whole.condition(theta)
    assert posterior is not None
    for one, other in zip(
        posterior.mean_and_variance(queries), dense.condition(theta).mean_and_variance(queries), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_degrees_with_observations_that_are_not_sent_are_not_needed() -> None:
    """The same answers, to rounding, as with all of them."""
    few = moments()
    data = ChebyshevSums(POOL.inputs, POOL.values, few.box)
    evaluations = [SumsEngine(known, 0).evaluate(np.log(THETA)) for known in (few, data)]
    assert evaluations[0] is not None
    assert evaluations[1] is not None
    assert evaluations[0].nll == pytest.approx(evaluations[1].nll, abs=1e-7)
    np.testing.assert_allclose(evaluations[0].gradient, evaluations[1].gradient, atol=1e-5)


def test_new_observations_are_differences() -> None:
    """Reduced alone and added, they are as if they had been there from the beginning."""
    network, whole = fg.InProcess(fg.Graph.path(5)), moments()
    old = reduce_moments(network, observed((x[:60], y[:60]) for x, y in SHARDS), whole.box, whole.sizes)
    new = reduce_moments(network, observed((x[60:], y[60:]) for x, y in SHARDS), whole.box, whole.sizes)
    both = old.plus(new)
    assert (old.count, new.count, both.count) == (300, 100, 400)
    for name in ("sums", "responses", "squares"):
        np.testing.assert_allclose(getattr(both, name), getattr(whole, name), rtol=1e-11, atol=1e-9)
    stored = FleetMoments.unpacked(both.box, both.sizes, both.packed)
    assert all(np.array_equal(getattr(stored, name), getattr(both, name)) for name in ("sums", "responses", "squares"))


def test_rows_outside_the_box_and_other_boxes_are_refused() -> None:
    whole = moments()
    outside = whole.box.centre + 1.01 * whole.box.half
    assert not whole.box.holds(outside[None])
    with pytest.raises(fg.InputError, match="expected inputs inside the given box"):
        ChebyshevSums(outside[None], np.ones(1), whole.box)
    inside = ChebyshevSums(POOL.inputs, POOL.values, whole.box)
    with pytest.raises(fg.InputError, match="inside the given box"):
        inside.grow(np.vstack([POOL.inputs, outside]), np.append(POOL.values, 1.0))
    x, y = SHARDS[0]
    with pytest.raises(fg.InputError, match="on the same box"):
        whole.plus(FleetMoments.of(ChebyshevSums(x, y), whole.sizes))
    with pytest.raises(fg.InputError, match="a grid of"):
        whole.plus(FleetMoments.of(ChebyshevSums(x, y, whole.box), (9, 9)))


@pytest.mark.parametrize("kind", ["anywhere", "clusters", "line", "diagonal", "repeats", "far"])
def test_the_faces_of_the_box_are_nobodys_inputs_but_close(kind: str) -> None:
    x = places(kind, 40, 2, np.random.default_rng(1))
    high, low = np.split(outer_corners(x.min(axis=0), x.max(axis=0)), 2)
    assert (high > x.max(axis=0)).all()
    assert (-low < x.min(axis=0)).all()
    width = np.ptp(x, axis=0)
    spare = np.where(width > 0, width, np.abs(x).max(axis=0)) / 8
    assert (high - x.max(axis=0) <= spare).all()
    assert Box.around(np.stack([high, -low])).holds(x)


def test_a_theta_beyond_the_grid_is_a_failure_that_tells_which_grid() -> None:
    expert = FleetExpert(moments())
    assert expert.covers(THETA)
    fine = np.array([1.2, 0.1, 1.3, 0.1])
    assert not expert.covers(fine)
    with pytest.raises(
        fg.NumericalError, match=r"\(\d+, \d+\) are needed at theta = \(l_1 = 1.2, l_2 = 0.1, .*dec-summary"
    ):
        expert.evaluate(np.log(fine))
    assert expert.failing
    assert expert.beyond[1] > expert.moments.sizes[1]
    assert expert.evaluate(np.log(THETA)).engine == "moments"
    assert not expert.failing


def test_the_finest_length_scales_of_a_grid_are_those_it_was_made_for() -> None:
    reach = np.array([1.0, 5.0])
    sizes = sizes_for_all([reach], [1e6], 1000)
    assert sizes is not None
    found = np.array(finest_reach(sizes, 1000))
    assert (found >= reach).all()
    assert (found <= reach * 2.0**0.26).all(), "two steps at most"


@pytest.mark.parametrize("times", [1, 100, 10_000])
def test_likelihoods_of_millions_of_rows_are_taken_for_exact_and_within_their_certificate(times: int) -> None:
    """Every place is measured many times: with the means and squares of its rows, an exact GP of 300 tells all."""
    rng, places = np.random.default_rng(5), 300
    x, theta = rng.uniform(-1, 1, (places, 2)), np.array([0.65, 0.75, 1.8, 0.1])
    scaled, noise2 = x / theta[:2], theta[3] ** 2
    K = theta[2] ** 2 * np.exp(-((scaled[:, None] - scaled) ** 2).sum(axis=2))
    field = np.linalg.cholesky(K + 1e-9 * np.eye(places)) @ rng.standard_normal(places)
    means = field + theta[3] / np.sqrt(times) * rng.standard_normal(places)
    within = places * (times - 1) * noise2  # squared deviations from the means
    box, count = Box.around(x), places * times
    sizes = sizes_for_all([box.half / theta[:2]], [float((theta[2] / theta[3]) ** 2)], count)
    assert sizes is not None
    once = FleetMoments.of(ChebyshevSums(x, means, box), sizes)
    expert = FleetExpert(FleetMoments(box, times * once.sums, times * once.responses, times * once.squares + within))
    assert expert.size == count
    assert expert.certain(np.log(theta))
    found = expert.engine.evaluate(np.log(theta))
    assert found is not None
    quadratic = within / noise2 + times * means @ np.linalg.solve(noise2 * np.eye(places) + times * K, means)
    determinant = count * np.log(noise2) + np.linalg.slogdet(np.eye(places) + (times / noise2) * K)[1]
    assert abs(found.nll - 0.5 * (quadratic + determinant)) < max(found.error, 1e-7)
