"""Who uses the cores: threads that do not block each other, memory that is used again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fleetgp.linalg import threads


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


def test_scratch_is_used_again_and_its_parts_are_apart() -> None:
    first = threads.scratch((2, 3), (4,))
    assert [part.shape for part in first] == [(2, 3), (4,)]
    assert not np.shares_memory(first[0], first[1])
    assert np.shares_memory(first[0], threads.scratch((5,))[0])
    with ThreadPoolExecutor(1) as elsewhere:
        assert not np.shares_memory(first[0], elsewhere.submit(threads.scratch, (5,)).result()[0])


@pytest.mark.parametrize(
    ("items", "largest", "shared"), [(2, 1999, 1), (1, 1999, 1), (1, 2000, 2), (2, 2000, 1), (3, 2000, 2), (7, 2000, 1)]
)
def test_a_few_large_ones_take_turns_with_all_threads(
    items: int, largest: int, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 2)
    main, _ = threads._libraries()
    seen: list[int] = []
    threads.share(lambda _: seen.append(main[0].num_threads), range(items), largest=largest)
    assert seen == [shared] * items
