"""For all tests: also the examples in docstrings, which are beside tests/, and its conftest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fleetgp.engines import expert
from fleetgp.graph.topology import GRAPHS
from fleetgp.kernels.stationary import KERNELS
from fleetgp.prediction.registry import METHODS as PREDICTORS
from fleetgp.registry import Registry
from fleetgp.training.methods import METHODS as TRAINERS


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers, or a page of the documentation, is gone after it."""
    registries: list[Registry[Any]] = [KERNELS, expert.ENGINES, GRAPHS, TRAINERS, PREDICTORS]
    before = [dict(registry) for registry in registries]
    yield
    for registry, items in zip(registries, before, strict=True):
        registry._items = items
