"""Who uses the cores: LAPACK without the lock, threads that do not block each other, stacks in both forms."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fleetgp.errors import NumericalError
from fleetgp.gp.dense import engine as dense
from fleetgp.gp.dense.engine import DenseExpert, evaluate_batch
from fleetgp.gp.expert import Expert, evaluate
from fleetgp.gp.kernels import KERNELS
from fleetgp.linalg import lapack, threads
from tests.conftest import paper_shards, positive_definite

THETA = np.array([1.2, 0.3, 1.3, 0.1])


@pytest.mark.parametrize("size", [1, 7, 48, 49, 130])
def test_lapack_routines(size: int, rng: np.random.Generator) -> None:
    matrix = positive_definite(rng, size)
    lower = matrix.copy(order="F")
    assert lapack.cholesky_in_place(lower)
    assert np.allclose(np.tril(lower), np.linalg.cholesky(matrix))
    right = np.asfortranarray(rng.standard_normal((size, 3)))
    solved, half, product = (right.copy(order="F") for _ in range(3))
    lapack.solve_in_place(lower, solved)
    assert np.allclose(matrix @ solved, right)
    lapack.half_solve_in_place(lower, half)
    assert np.allclose(np.tril(lower) @ half, right)
    lapack.multiply_triangle_in_place(lower, product)
    assert np.allclose(product, np.tril(lower) @ right)
    lapack.inverse_in_place(lower)
    assert np.allclose(np.tril(lower), np.tril(np.linalg.inv(matrix)))


def test_lapack_refuses_what_it_would_misread() -> None:
    assert not lapack.cholesky_in_place(np.asfortranarray([[1.0, 2.0], [2.0, 1.0]]))
    for wrong in (np.ones((2, 2), dtype=np.float32, order="F"), np.arange(6.0).reshape(2, 3)[:, :2]):
        with pytest.raises(TypeError, match="Fortran"):
            lapack.cholesky_in_place(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", [1, 2, 40, 101])
def test_stacks_compiled_or_not_and_slabs_agree(kernel: str, size: int, rng: np.random.Generator) -> None:
    experts = [
        DenseExpert(rng.uniform(0, 2, (size, 2)), rng.standard_normal(size), KERNELS[kernel], i) for i in range(5)
    ]
    log_thetas = rng.uniform(-1.0, 0.5, (5, 4))
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        found["compiled"] = evaluate_batch(experts, log_thetas)
        patch.setattr(dense, "compiled_likelihoods", lambda: None)
        found["numpy"] = evaluate_batch(experts, log_thetas)
        patch.setattr(dense, "STACKED", (0, 0))
        found["slabs"] = evaluate_batch(experts, log_thetas)
    for name in ("numpy", "slabs"):
        for one, other in zip(found["compiled"], found[name], strict=True):
            assert not isinstance(one, NumericalError)
            assert not isinstance(other, NumericalError)
            assert one.nll == pytest.approx(other.nll, rel=1e-9, abs=1e-9)
            assert np.allclose(one.gradient, other.gradient, rtol=1e-7, atol=1e-8)


def test_one_failure_does_not_touch_the_others_in_a_stack(rng: np.random.Generator) -> None:
    x = rng.uniform(0, 1, (20, 1))
    experts = [DenseExpert(x, rng.standard_normal(20), KERNELS["se"], i) for i in range(4)]
    log_thetas = np.log(np.tile([0.3, 1.0, 0.1], (4, 1)))
    log_thetas[1, -1] = -40.0  # needs jitter
    log_thetas[2, 0] = 1e3  # out of range
    found = evaluate_batch(experts, log_thetas)
    assert isinstance(found[2], NumericalError)
    assert "agent 2" in str(found[2])
    for i in (0, 3):
        (alone,) = evaluate_batch([experts[i]], log_thetas[i : i + 1])
        assert np.array_equal(found[i].gradient, alone.gradient)  # type: ignore[union-attr]
    assert found[1].jitter > 0.0  # type: ignore[union-attr]


def test_threads_are_given_back_and_do_not_block_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [c.num_threads for group in threads._libraries() for c in group]
    monkeypatch.setattr(threads, "cores", lambda: 2)
    pool = ThreadPoolExecutor(2)
    monkeypatch.setattr(threads, "_pool", lambda: pool)

    def nested(i: int) -> int:
        with threads.blas_threads(1):
            return sum(threads.side_by_side(lambda k: k + i, [1, 2, 3]))

    assert threads.side_by_side(nested, [0, 1, 2, 3]) == [6, 9, 12, 15]
    with ThreadPoolExecutor(4) as outside:  # as hosts of one process do
        assert list(outside.map(nested, range(8))) == [6 + 3 * i for i in range(8)]

    def fail(_: int) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        threads.side_by_side(fail, [1, 2])
    assert threads.side_by_side(nested, [0, 1]) == [6, 9]
    assert [c.num_threads for group in threads._libraries() for c in group] == before


def test_any_thread_can_have_its_turn() -> None:
    """Also after another has had one: threadpoolctl would hear the first only."""
    main, other = threads._libraries()

    def limited(count: int) -> list[int]:
        with threads.blas_threads(count):
            return [c.num_threads for c in (*main, *other)]

    before = [c.num_threads for c in (*main, *other)]
    for count in (1, 2):
        expected = [count] * len(main) + [1] * len(other)
        assert limited(count) == expected
        with ThreadPoolExecutor(1) as elsewhere:
            assert elsewhere.submit(limited, count).result() == expected
        assert [c.num_threads for c in (*main, *other)] == before


@pytest.mark.parametrize("engine", ["dense", "moments"])
def test_an_agents_bits_do_not_depend_on_its_company(engine: str) -> None:
    shards = paper_shards(1200, 12)
    log_thetas = np.log(THETA) + np.linspace(0, 0.3, 12)[:, None]
    together = evaluate([Expert(x, y, KERNELS["se"], i, engine) for i, (x, y) in enumerate(shards)], log_thetas)
    for i, (x, y) in enumerate(shards):
        alone = Expert(x, y, KERNELS["se"], i, engine).evaluate(log_thetas[i])
        one = together[i]
        assert not isinstance(one, NumericalError)
        assert alone.nll == one.nll
        assert np.array_equal(alone.gradient, one.gradient)
