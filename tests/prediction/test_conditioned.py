"""Posteriors that are kept: computed once, within bounds of memory, and the same as those that are not kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.consensus.agreements import Scaling, sample
from fleetgp.data.dataset import InMemory
from fleetgp.data.transforms import View
from fleetgp.engines.expert import Expert
from fleetgp.kernels.stationary import KERNELS
from fleetgp.model.observations import Observations
from fleetgp.prediction import Conditioned, PredictionCache, PredictionOptions, Question, predict, prediction_method
from fleetgp.prediction.methods import BLOCK, block_size
from fleetgp.prediction.posteriors import UNUSED, Posteriors, Room, held_bytes
from tests.conftest import paper_shards
from tests.shared import observed

THETA = np.array([0.5, 0.4, 1.3, 0.2])
SE = KERNELS["se"]


def posteriors(data: Sequence[Observations], room: Room) -> Posteriors:
    thetas = np.tile(THETA, (len(data), 1))
    return Posteriors(
        data,
        range(len(data)),
        thetas,
        lambda own, i: Expert(own, SE, i, "dense"),
        room,
        lambda points, given: np.repeat(given[:, -2:-1] ** 2, len(points), axis=1),
    )


def queries(count: int = 9) -> np.ndarray:
    return np.random.default_rng(3).uniform(0.1, 1.9, (count, 2))


def test_a_posterior_is_computed_once_where_it_is_wanted_and_forgotten_on_release(conditionings: list[int]) -> None:
    room = Room()
    kept = posteriors(observed(paper_shards(60, 3)), room)
    wanted = np.zeros((3, 9), dtype=bool)
    wanted[1, 4:] = True
    some = kept.at(queries(), wanted)
    assert conditionings == [20]
    assert some.engine == (UNUSED, "dense", UNUSED)
    assert (some.mean[~wanted] == 0.0).all()
    assert (some.variance[~wanted] == THETA[2] ** 2).all()
    everywhere = kept.at(queries())
    assert conditionings == [20] * 3
    np.testing.assert_allclose(some.mean[wanted], everywhere.mean[wanted], rtol=1e-12)
    kept.at(queries())
    assert conditionings == [20] * 3
    assert room.left < Room().left
    kept.release()
    assert room.left == Room().left
    kept.at(queries())
    assert len(conditionings) == 6


def test_what_does_not_fit_is_computed_again_and_is_the_same(
    conditionings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetgp.prediction.posteriors.KEPT_BYTES", 1)  # as many at a time as there are cores
    data = observed(paper_shards(100, 5))
    whole = posteriors(data, Room(1 << 20)).at(queries())
    size = held_bytes(Expert(data[0], SE, 0, "dense").condition(THETA))
    assert 20**2 * 8 <= size < 3 * 20**2 * 8
    conditionings.clear()
    tight = posteriors(data, Room(3 * size))
    for _ in range(2):
        found = tight.at(queries())
        assert np.array_equal(found.mean, whole.mean)
        assert np.array_equal(found.variance, whole.variance)
    assert len(conditionings) == 5 + 2


def test_the_samples_have_one_posterior_for_all_agents_of_a_theta(conditionings: list[int]) -> None:
    shards = observed(paper_shards(120, 4))
    thetas = np.stack([THETA, 2.0 * THETA, THETA, THETA])
    conditioned = Conditioned(shards, SE, thetas)
    samples = [own.rows(slice(3)) for own in shards]
    together = conditioned.common(samples, queries())
    assert conditionings == [12, 12]
    for agent in range(4):
        alone = Conditioned(shards[agent : agent + 1], SE, thetas[agent : agent + 1]).common(samples, queries())
        assert np.array_equal(together.mean[agent], alone.mean[0])
        assert np.array_equal(together.variance[agent], alone.variance[0])
    assert not np.array_equal(together.mean[0], together.mean[1])


def test_other_samples_have_other_posteriors(conditionings: list[int]) -> None:
    shards = observed(paper_shards(60, 3))
    conditioned = Conditioned(shards, SE, np.tile(THETA, (3, 1)))
    for seed, expected in ((0, 4), (0, 4), (1, 8)):
        options = PredictionOptions(seed=seed)
        row = prediction_method("dec-grbcm")
        found = predict(conditioned, fg.InProcess(fg.Graph.path(3)), Question(row, queries(), options))
        assert len(conditionings) == expected
        fresh = Conditioned(shards, SE, np.tile(THETA, (3, 1)))
        again = predict(fresh, fg.InProcess(fg.Graph.path(3)), Question(row, queries(), options))
        del conditionings[expected:]
        assert np.array_equal(found.means, again.means)
        assert found.ledger.as_dict() == again.ledger.as_dict(), "every question sends the samples"


@pytest.mark.parametrize("kernel", ["se", "matern32"])
@pytest.mark.parametrize("works", [True, False])
def test_extensions_of_the_samples_are_the_posteriors_of_augmented_data(
    kernel: str, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block factorization against one factorization of everything, which is also the way out."""
    three = observed(paper_shards(120, 3))
    shards = InMemory([*three, three[0].rows(slice(1))])  # the last has one observation, its sample
    conditioned = Conditioned(shards, KERNELS[kernel], np.tile(THETA, (4, 1)), engine="dense")
    samples = [sample(shard, 4, seed=5) for shard in shards]
    wanted = np.random.default_rng(0).uniform(size=(4, 9)) < 0.7
    wanted[2] = False
    if not works:  # as if the samples' covariance were singular
        monkeypatch.setattr("fleetgp.prediction.posteriors.factorize", lambda *_: None)
    found, common = conditioned.with_samples(range(4), samples, queries(), wanted)
    expected = conditioned.augmented(range(4), samples).at(queries(), wanted)
    alone = conditioned.common(samples, queries())
    assert found.engine == ("dense", "dense", UNUSED, "dense") == expected.engine
    assert np.array_equal(found.mean, expected.mean) != works
    assert found.jitter == expected.jitter == 0.0
    for one, other in ((found, expected), (common, alone)):
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(one.variance, other.variance, rtol=1e-9, atol=1e-10)
    assert (found.mean[~wanted] == 0.0).all()
    assert (found.variance[~wanted] == THETA[2] ** 2).all()


def test_a_cache_gives_the_same_posteriors_until_something_changes() -> None:
    shards, thetas = observed(paper_shards(60, 3)), np.tile(THETA, (3, 1))
    cache = PredictionCache()
    first = cache.conditioned(shards, SE, thetas, View(), "auto")
    copies = InMemory(own.rows(np.arange(len(own))) for own in shards)
    assert cache.conditioned(copies, SE, thetas.copy(), View(), "auto") is first
    x, y = shards[1].inputs, shards[1].values
    grown = InMemory([shards[0], Observations(np.vstack([x, x[:1]]), np.append(y, 0.0)), shards[2]])
    assert cache.conditioned(grown, SE, thetas, View(), "auto") is first
    assert len(first.shards[1]) == len(y) + 1
    inserted = InMemory([shards[0], Observations(np.vstack([x[:1], x]), np.append(0.0, y)), shards[2]])
    for others in (inserted, shards):
        assert cache.conditioned(others, SE, thetas, View(), "auto") is first
        assert all(own.same(other) for own, other in zip(first.shards, others, strict=True))
    for changed in (
        (InMemory(own.with_values(-own.values) for own in shards), SE, thetas, View(), "auto"),
        (shards, KERNELS["matern32"], thetas, View(), "auto"),
        (shards, SE, 1.001 * thetas, View(), "auto"),
        (shards, SE, thetas, View(Scaling(1.0, 2.0)), "auto"),
        (shards, SE, thetas, View(), "dense"),
    ):
        before = cache.conditioned(shards, SE, thetas, View(), "auto")
        assert cache.conditioned(*changed) is not before


@pytest.mark.filterwarnings("ignore:.*no better known:fleetgp.errors.FleetGPWarning")  # of NPAE that is cut short
@pytest.mark.parametrize("method", fg.PREDICTION_METHODS)
def test_answers_do_not_depend_on_the_blocks(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every query stops by itself: blocks change an answer within the tolerance, and every query is sent for."""
    row = prediction_method(method)
    fleet = fg.Fleet(paper_shards(100, 4), "complete", theta=THETA, kernel="se", normalize=False)
    options = row.those_of(consensus="average", rounds=40 if row.rule == "npae" else 400)
    whole = fleet.condition().predict(queries(7), method, **options)
    monkeypatch.setattr("fleetgp.prediction.methods.BLOCK", 3)
    parts = fleet.condition().predict(queries(7), method, agent=2, **options)
    assert parts.means.shape == whole.means.shape
    assert np.array_equal(parts.participants, whole.participants)
    assert parts.status == whole.status
    assert parts.engine == whole.engine
    assert parts.asked == 2
    if whole.status == "converged":
        np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(parts.variance, whole.variance, rtol=1e-4, atol=1e-5)
    if row.rule == "grbcm":  # what is not about queries is sent once, whatever the blocks
        for kind in ("inputs", "observations"):
            assert parts.ledger.total(kind=kind) == whole.ledger.total(kind=kind)
    if method == "dec-full-gp":
        assert "predictions" not in parts.ledger.kinds
    else:
        assert parts.ledger.total(kind="predictions").messages > whole.ledger.total(kind="predictions").messages


def test_many_agents_get_smaller_blocks_and_all_the_same() -> None:
    few, many = fg.InProcess(fg.Graph.path(10)), fg.InProcess(fg.Graph.complete(120))
    assert block_size(prediction_method("dec-rbcm"), few) == BLOCK
    smaller = block_size(prediction_method("dec-rbcm"), many)
    assert 0 < block_size(prediction_method("dec-npae"), many) < smaller < BLOCK
    hosted = fg.Loopback(fg.Graph.complete(120), [[i] for i in range(120)])
    sizes = hosted.run(lambda network: block_size(prediction_method("dec-rbcm"), network))
    assert set(sizes) == {smaller}


@pytest.mark.parametrize("kernel", ["matern12", "matern32", "se"])
@pytest.mark.parametrize("noise", [1e-5, 1e-9])
def test_readings_that_repeat_leave_grbcm_between_them(kernel: str, noise: float) -> None:
    """Two readings at each place differ by 0.5: the answer there is between them, however small the noise is."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 2, (60, 2))
    y = np.sin(3 * x[:, 0])
    shards = [(np.concatenate([x[i::4]] * 2), np.concatenate([y[i::4], y[i::4] + 0.5])) for i in range(4)]
    found = fg.Fleet(shards, theta=[0.5, 0.5, 1.0, noise], kernel=kernel, normalize=False).predict(
        x, "grbcm", engine="dense"
    )
    assert np.abs(found.mean - (y + 0.25)).max() < 0.3
    assert (found.variance > 0.0).all()
    assert (found.jitter > 0.0) == (noise < 1e-8), "where rounding is larger than the noise, it says so"


@pytest.mark.parametrize("method", ["grbcm", "dec-nn-grbcm", "rbcm", "dec-npae"])
def test_an_engine_that_the_kernel_does_not_have_is_refused_by_every_method(method: str) -> None:
    fleet = fg.Fleet(paper_shards(60, 3), theta=THETA, kernel="matern32", normalize=False)
    with pytest.raises(fg.InputError, match="needs the squared exponential, got the kernel 'matern32'"):
        fleet.predict(queries(), method, engine="moments")


def test_one_data_set_is_kept_however_large(conditionings: list[int]) -> None:
    kept = posteriors(observed(paper_shards(60, 1)), Room(bytes=8))
    kept.at(queries())
    kept.at(queries())
    assert conditionings == [60]


def test_npae_computes_each_posterior_once_a_block(conditionings: list[int]) -> None:
    kept = posteriors(observed(paper_shards(60, 3)), Room(bytes=8))
    found, values = kept.all_at(queries())
    assert len(found) == 3
    assert conditionings == [20] * 3
    np.testing.assert_allclose(values.mean, kept.at(queries()).mean, rtol=1e-12)
