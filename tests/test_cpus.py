"""`make test-cpus` says so where its choice of a processor had no effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cpus import NUMERICAL, PROCESSORS, SHARED, TELLING, check

NEHALEM, HASWELL, ZEN, SKYLAKE = PROCESSORS


def told(*kernels: str, threads: int = 1, api: str = "openblas", numpy: list[str] | None = None) -> dict[str, Any]:
    blas = [(f"{number}.so", api, architecture, threads) for number, architecture in enumerate(kernels)]
    return {"blas": blas, "numpy": numpy or [], "cores": 2}


def test_a_choice_that_took_effect() -> None:
    assert check(HASWELL, 1, told("Haswell", "Haswell")) == "Haswell"
    assert check(ZEN, 1, told("Haswell", "Haswell")) == "Haswell", "builds without Zen's own kernels"
    assert check(ZEN, 1, told("Zen", "Zen")) == "Zen"
    assert check(SKYLAKE, 2, told("SkylakeX", "SkylakeX", threads=2)) == "SkylakeX"
    assert check(SKYLAKE, 2, {**told("SkylakeX", "SkylakeX"), "cores": 1}) == "SkylakeX"


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (told("Haswell", "Haswell"), "OPENBLAS_CORETYPE=Nehalem had no effect"),
        (told("Nehalem", "Haswell"), "OPENBLAS_CORETYPE=Nehalem had no effect"),
        (told("Nehalem"), "expected it in two OpenBLAS"),
        (told("Nehalem", "Nehalem", api="mkl"), "expected it in two OpenBLAS"),
        (told("Nehalem", "Nehalem", threads=2), "OPENBLAS_NUM_THREADS=1 had no effect"),
        (told("Nehalem", "Nehalem", numpy=["AVX2"]), "NumPy still uses"),
    ],
)
def test_a_choice_without_effect_is_a_failure(found: dict[str, Any], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        check(NEHALEM, 1, found)


def test_the_chosen_tests_are_there() -> None:
    """pytest says so too, but only where somebody runs them."""
    here = Path(__file__).parent
    assert [name for name in (*NUMERICAL, *TELLING, *SHARED) if not (here / name).exists()] == []
