"""Sums over a grid of products of two functions, in every way against the functions' values at all nodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.moments import grid
from fleetgp.engines.moments.engine import MomentsEngine
from fleetgp.engines.moments.grid import Blocks, OneAxis, Pairs
from fleetgp.model.observations import Observations
from tests.conftest import paper_shards
from tests.engines.moments.problems import SE, THETA


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_sums_and_quadratic_forms_are_those_of_the_functions(seed: int, dimension: int) -> None:
    rng = np.random.default_rng(seed)
    sizes, ranks = rng.integers(1, 7, dimension), rng.integers(1, 5, dimension)
    functions = [rng.standard_normal((size, rank)) for size, rank in zip(sizes, ranks, strict=True)]
    weights = rng.standard_normal(sizes)
    chosen = np.sort(rng.choice(ranks.prod(), rng.integers(1, ranks.prod() + 1), replace=False))
    kept = np.stack(np.unravel_index(chosen, ranks))
    phi = np.ones((1, kept.shape[1]))
    for values, row in zip(functions, kept, strict=True):
        phi = (phi[:, None] * values[:, row]).reshape(-1, kept.shape[1])
    matrix = rng.standard_normal((kept.shape[1],) * 2)
    matrix += matrix.T
    ways: list[type[OneAxis | Pairs | Blocks]] = [OneAxis] if dimension == 1 else [Pairs, Blocks]
    for way in ways:
        found = way(kept, functions)
        assert np.allclose(found.sums(weights), phi.T @ (weights.reshape(-1, 1) * phi), atol=1e-10)
        assert np.allclose(found.quadratic(matrix).ravel(), np.einsum("gi,ij,gj->g", phi, matrix, phi), atol=1e-10)


def test_a_basis_in_blocks_has_the_likelihood_of_the_dense_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "LONGEST_IN_PAIRS", 0)
    x, y = paper_shards(900, 1)[0]
    found, dense = (
        MomentsEngine(Observations(x, y), 0).evaluate(np.log(THETA)),
        DenseEngine(Observations(x, y), SE, 0).evaluate(np.log(THETA)),
    )
    assert found is not None
    assert abs(found.nll - dense.nll) <= found.error
    assert np.allclose(found.gradient, dense.gradient, rtol=1e-6, atol=1e-6)


def test_long_bases_and_large_tables_go_by_blocks() -> None:
    assert grid.by_pairs(np.array([30.0, 30.0]), 800)
    assert not grid.by_pairs(np.array([60.0, 60.0]), 3000)
    assert not grid.by_pairs(np.array([20.0, 20.0, 20.0]), 1500)
