"""kernel="auto": the kernel of the data, by sums of densities that a dense computation gives too."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import fleetgp as fg
from fleetgp.data.partition import FOLDS, block_pieces, hidden
from fleetgp.errors import InputError
from fleetgp.kernels.expression import CANDIDATES, as_kernels
from fleetgp.kernels.stationary import KERNELS
from fleetgp.network import Network
from fleetgp.training import Fit, TrainingOptions, train, training_method
from fleetgp.training.outer_loops import CELLS
from tests.conftest import mostly_long
from tests.shared import observed

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")


def covariance(kernel: str, one: Any, other: Any, theta: Any) -> Any:
    """Written out once more."""
    r = np.sqrt((((one[:, None] - other) / theta[:2]) ** 2).sum(axis=-1))
    shapes = {
        "se": np.exp(-(r**2)),  # the paper's, without the half
        "matern12": np.exp(-r),
        "matern32": (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
    }
    return theta[2] ** 2 * shapes[kernel]


@cache
def drawn(kernel: str, rows: int, agents: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(11)
    x = rng.uniform(0.0, 2.0, (rows, 2))
    c = covariance(kernel, x, x, np.array([0.6, 0.6, 1.0])) + 0.01 * np.eye(rows)
    return tuple(fg.partition(x, multivariate_normal(cov=c, seed=3).rvs(), agents=agents))


@pytest.mark.parametrize("kernel", ["se", "matern12"])
def test_the_kernel_of_the_data_is_chosen(kernel: str) -> None:
    fleet = fg.Fleet(drawn(kernel, 240, 3), "path", kernel="auto", normalize=False)
    fit = fleet.train("dec-fact-gp", tol=1e-3)
    assert fit.kernel == fleet.kernel.name == kernel
    assert [one.kernel for one in fit.compared] == list(CANDIDATES)
    assert {one.rows for one in fit.compared} == {240}
    assert max(fit.compared, key=lambda one: one.density).kernel == kernel
    # Nothing but sums: no input and no observation of anybody.
    assert set(fit.ledger.kinds) == {"statistics"}
    # What is trained in the end is the same as with this kernel alone.
    alone = fg.Fleet(drawn(kernel, 240, 3), "path", kernel=kernel, normalize=False).train("dec-fact-gp", tol=1e-3)
    assert np.array_equal(alone.thetas, fit.thetas)
    assert fleet.predict([[0.5, 0.5]], "dec-rbcm").mean.shape == (1,)


def test_densities_are_those_of_a_dense_computation() -> None:
    shards = drawn("matern32", 120, 2)
    fit = fg.Fleet(shards, "path", kernel=["matern32", "se"], normalize=True).train("dec-fact-gp", tol=1e-2)
    for one in fit.compared:
        theta, total = np.array(one.theta), 0.0
        for x, y in shards:
            pieces = block_pieces(x, x.min(axis=0), x.max(axis=0), CELLS, 0)
            for mask in (hidden(pieces, fold) for fold in range(FOLDS)):
                rest, away = x[~mask], x[mask]
                weights = np.linalg.solve(
                    covariance(one.kernel, rest, rest, theta) + theta[-1] ** 2 * np.eye(len(rest)),
                    covariance(one.kernel, rest, away, theta),
                )
                mean = fit.scaling.offset + weights.T @ (y[~mask] - fit.scaling.offset)
                explained = (weights * covariance(one.kernel, rest, away, theta)).sum(axis=0)
                variance = theta[2] ** 2 - explained + theta[-1] ** 2
                total += norm.logpdf(y[mask], mean, np.sqrt(variance)).sum()
        assert one.rows == 120
        assert one.density == pytest.approx(total / 120, rel=1e-6)


@pytest.mark.parametrize("method", ["dec-fact-gp", "dec-apx-gp"])
def test_the_same_bits_and_messages_however_the_agents_are_hosted(method: str) -> None:
    shards, graph = drawn("matern12", 90, 3), fg.Graph.path(3)
    options = TrainingOptions(rounds=4, normalize=True)

    def work(network: Network) -> Fit:
        mine = observed(shards[i] for i in network.hosted)
        return train(training_method(method), mine, network, as_kernels(["se", "matern12"]), options)

    whole = work(fg.InProcess(graph))
    for hosting in ([[0, 1], [2]], [[0], [1], [2]]):
        loopback = fg.Loopback(graph, hosting)
        for group, fit in zip(hosting, loopback.run(work), strict=True):
            assert (fit.kernel, fit.compared) == (whole.kernel, whole.compared)
            assert np.array_equal(fit.history, whole.history[:, group])
        assert loopback.ledger.as_dict() == whole.ledger.as_dict()


@pytest.mark.parametrize("method", mostly_long(("full-gp", "g-fact-gp", "apx-gp", "dec-gapx-gp"), "full-gp", "apx-gp"))
def test_every_kind_of_trainer_compares(method: str) -> None:
    fit = fg.Fleet(drawn("matern12", 90, 3), "path", kernel=["se", "matern12"], normalize=False).train(
        method, tol=1e-2, rounds=5
    )
    assert fit.kernel in ("se", "matern12")
    assert all(np.isfinite(one.density) for one in fit.compared)


def test_without_a_choice_nothing_is_compared() -> None:
    fit = fg.Fleet(drawn("matern12", 90, 3), "path", kernel="matern12", normalize=False).train(rounds=1)
    assert (fit.kernel, fit.compared) == ("matern12", ())


def test_what_cannot_be_is_refused() -> None:
    shards = drawn("matern12", 90, 3)
    with pytest.raises(InputError, match="theta belongs to one kernel"):
        fg.Fleet(shards, kernel="auto", theta=[1.0, 1.0, 1.0, 0.1], normalize=False)
    with pytest.raises(InputError, match='dec-full-gp is for the kernel "se" alone'):
        fg.Fleet(shards, kernel="auto", normalize=False).train("dec-full-gp")
    with pytest.raises(InputError, match="yet to choose its kernel: call train first"):
        _ = fg.Fleet(shards, kernel="auto", normalize=False).kernel
    with pytest.raises(InputError, match="expected agents with at least 20 rows"):
        fg.Fleet([(x[:10], y[:10]) for x, y in shards], kernel=["se", "matern12"], normalize=False).train(rounds=2)
    for kernel, match in ((["se", "se"], "different kernels"), ([], "a list of kernels"), (3, "a list of kernels")):
        with pytest.raises(InputError, match=match):
            fg.Fleet(shards, kernel=kernel, normalize=False)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown kernel 'rough'"):
        fg.Fleet(shards, kernel=["se", "rough"], normalize=False)


def test_a_kernel_that_is_set_is_the_only_one() -> None:
    fleet = fg.Fleet(drawn("matern12", 90, 3), kernel="se", normalize=False)
    fleet.kernel = KERNELS["matern12"]
    assert [kernel.name for kernel in fleet.kernels] == ["matern12"]
