"""The part of the configurations that is kept as a test: rounds and bytes exactly, and results as decimal numbers.

`python -m tests.same store` writes stored.json again; write it only where another answer is right. What is chosen has
the same rounds and bytes with the arithmetic of all processors that `tests.cpus` tries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.same.calls import PREDICTORS, TRAINERS, Record
from tests.same.configurations import CONFIGURATIONS, run
from tests.same.records import LEDGER, flat

FILE = Path(__file__).with_name("stored.json")
#: Relative to the largest number of an array.
TOLERANCE = 1e-6
#: So many numbers of an array are kept, spread over it, and the norm of all.
NUMBERS = 5
CHOSEN = (
    *(f"trainer {method}" for method in TRAINERS),
    "trainer dec-fact-gp from three starts",
    "dec-apx-gp with the penalties of the paper",
    "apx-gp with a stiffness",
    "dec-fact-gp with bounds, priors and a fixed value",
    "dec-apx-gp with bounds, priors and a fixed value",
    "dec-apx-gp with a time limit that is far",
    "steps of dec-apx-gp",
    *(name for name in CONFIGURATIONS if name.startswith("on a") or name == "on the graph of places"),
    *(f"predictor {method}" for method in PREDICTORS),
    "predictor dec-gpoe by averages",
    "predictor dec-nn-rbcm by averages",
    "predictor dec-nn-grbcm with eta",
    "predictor dec-npae with vectors",
    "predictor dec-summary with a small budget",
    "predictor dec-summary with every agent alone",
    *(
        f"together by {method}"
        for method in ("full-gp", "dec-full-gp", "dec-nearest", "dec-nn-rbcm", "dec-grbcm", "dec-summary")
    ),
    "calibration of dec-rbcm by both",
    "cross-validation by block",
    "scores of dec-nn-grbcm",
    "maps",
    *(f"kernel {name}" for name in ("matern12", "matern52", "iso-matern32", "matern32(lon, lat) * matern12(day)")),
    "kernel linear + periodic(lon) + iso-rq(lat, day)",
    "mean linear by few rounds",
    "mean constant by dec-fact-gp",
    "coordinates: scaled",
    "coordinates: kilometres by dec-apx-gp",
    "coordinates: the sphere",
    "noise known by dec-apx-gp",
    "noise of agents by dec-gapx-gp",
    "noise with outliers",
    "engine vecchia",
    "engine moments",
    "streaming matern32 by dense and dec-nn-grbcm after none",
    "streaming matern52 by dense and dec-nn-grbcm after a training",
    "streaming matern32 by dense and dec-summary after none",
    "files: csv in chunks by dec-full-gp",
    "a table",
    "targets by dec-apx-gp",
    "model of a training",
    "private rows",
    "what is asked by default",
)
#: The last names of the paths of what is kept: exactly, and as numbers.
EXACTLY = ("rounds", "status", "indices", "agents", "query rounds", "outliers", "labels")
FIELDS = ("theta", "nll", "mean", "means", "variances", "covariance", "gradient", "gains", "draws", "factor")
AS_NUMBERS = (*FIELDS, "rmse", "nlpd", "coverage", "y", "y_std", "constant", "slopes")


def kept(record: Record) -> dict[str, Any]:
    """What of a record is kept. Of a ledger these are rounds, messages and bytes, and the bytes of each kind."""
    result: dict[str, Any] = {}
    for path, value in flat(record):
        names = [part.split("[")[0] for part in path.split(".")]
        if LEDGER in names:
            of = names.index(LEDGER)
            ledger, kind = ".".join(path.split(".")[: of + 1]), names[of + 1 :]
            if kind[0] == "kinds":
                result.setdefault(ledger, {})[kind[1]] = value[2]
            elif len(kind) == 1:
                result.setdefault(ledger, {})[kind[0]] = value
        elif isinstance(value, np.ndarray) and names[-1] in AS_NUMBERS and names[-2:-1] != ["starts"]:
            result[path] = rounded(value)
        elif not isinstance(value, np.ndarray) and names[-1] in EXACTLY and "starts" not in names:
            result[path] = value
    return result


def rounded(array: Any) -> list[float | None]:
    """Some numbers of an array, then the norm of all; None for what is no number."""
    numbers = array.ravel()
    places = np.unique(np.linspace(0, max(len(numbers) - 1, 0), NUMBERS).astype(int))[: len(numbers)]
    norm = float(np.sqrt(np.nansum(numbers**2)))
    return [float(f"{each:.8g}") if np.isfinite(each) else None for each in (*numbers[places], norm)]


def different(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What is not the same in what is kept of two records; empty if all is."""
    result = [f"{path}: only in one of them" for path in sorted(old.keys() ^ new.keys())]
    for path in old.keys() & new.keys():
        before, after = old[path], new[path]
        as_numbers = path.rpartition(".")[2].split("[")[0] in AS_NUMBERS
        if not (as_numbers and close(before, after) if as_numbers else before == after):
            result.append(f"{path}: expected {before}, got {after}")
    return sorted(result)


def close(before: list[float | None], after: list[float | None]) -> bool:
    """Whether numbers of an array are the same to the tolerance. The last is the norm, and none is larger.

    >>> close([1.0, 2.0, 3.0], [1.0, 2.000001, 3.0]), close([1.0, None], [1.0, 2.0]), close([1.0, 2.0], [1.1, 2.0])
    (True, False, False)
    """
    if [each is None for each in before] != [each is None for each in after]:
        return False
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a is not None and b is not None]
    return all(abs(a - b) <= TOLERANCE * max((abs(one) for one, _ in pairs), default=0.0) for a, b in pairs)


def read() -> dict[str, Any]:
    result: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return result


def write() -> None:
    """A line for each configuration."""
    lines = [f"{json.dumps(name)}: {json.dumps(kept(run(name)), separators=(',', ':'))}" for name in CHOSEN]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
