"""What the fleet agrees on before the first round: scaling and samples."""

from __future__ import annotations

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.consensus.agreements import augmented, sample
from tests.conftest import paper_shards
from tests.shared import observed
from tests.training.problems import (
    THETA0,
    fleet,
    relative_error,
)

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")


@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
def test_every_method_scales_by_the_pooled_moments(method: str) -> None:
    kelvin = [(x, 290.0 + 3.0 * y) for x, y in paper_shards(90, 3)]
    pooled = np.concatenate([y for _, y in kelvin])
    fit = fg.Fleet(kelvin, normalize=True, kernel="se").train(method, theta0=[2.0, 0.5, 3.0, 3.0], rounds=2)
    assert fit.scaling.offset == pytest.approx(pooled.mean(), rel=1e-12)
    assert fit.scaling.scale == pytest.approx(pooled.std(), rel=1e-12)


def test_normalization_by_consensus() -> None:
    """Data near 290 K: the agreed mean and deviation are the pooled ones, and theta is in Kelvin."""
    plain = paper_shards(300, 4)
    kelvin = [(x, 290.0 + 3.0 * y) for x, y in plain]
    pooled = np.concatenate([y for _, y in kelvin])
    f = fg.Fleet(kelvin, normalize=True, kernel="se")
    fit = f.train("dec-apx-gp", theta0=[2.0, 0.5, 3.0, 3.0])
    assert fit.scaling.offset == pytest.approx(pooled.mean(), rel=1e-12)
    assert fit.scaling.scale == pytest.approx(pooled.std(), rel=1e-12)
    centred = [(x, y - pooled.mean()) for x, y in kelvin]
    reference = (
        fg.Fleet(centred, kernel="se", normalize=False).train("fact-gp", theta0=[2.0, 0.5, 3.0, 3.0], tol=1e-6).theta
    )
    assert relative_error(fit.thetas, reference) < 1e-3
    assert np.allclose(fit.starts[0].theta0, [2.0, 0.5, 3.0, 3.0])
    assert fit.ledger.by_phase()["normalize"].scalars > 0


def test_samples_are_seeded_and_not_repeated() -> None:
    shards = observed(paper_shards(60, 3))
    samples = [sample(s, 3, seed=5) for s in shards]
    assert all(np.array_equal(a.inputs, sample(s, 3, 5).inputs) for a, s in zip(samples, shards, strict=True))
    assert not np.array_equal(samples[0].inputs, sample(shards[0], 3, seed=6).inputs)
    for i, shard in enumerate(shards):
        whole = augmented(shard, i, samples)
        x, y = whole.inputs, whole.values
        assert len(np.unique(x, axis=0)) == len(x) == len(y)
        assert len(x) == 20 + sum(len(samples[j]) for j in range(3) if j != i)
        assert np.array_equal(x[-20:], shard.inputs)


def test_dec_gapx_gp_sends_exactly_the_sampled_rows() -> None:
    shards = paper_shards(200, 5)
    fit = fleet(200, 5).train("dec-gapx-gp", theta0=THETA0, rounds=2, tol=0, noise_floor=0)
    rows = sum(max(1, len(y) // 5) for _, y in shards)
    # On a path of five every row crosses every one of the four edges once.
    assert fit.ledger.total(kind="inputs").scalars == 4 * rows * 2
    assert fit.ledger.total(kind="observations").scalars == 4 * rows
    assert set(fit.ledger.rounds_by_phase) == {"augment", "training"}
