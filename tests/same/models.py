"""Kernels, mean functions, coordinates, noise and engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.same import calls, data
from tests.same.calls import Record
from tests.same.data import QUERIES, START, THETA
from tests.same.methods import trained
from tests.same.registry import add, configuration

# ---- kernels -----------------------------------------------------------------------------------------------------

_DAYS = ["lon", "lat", "day"]
KERNELS: tuple[tuple[str, int], ...] = (
    ("se", 2),
    ("matern12", 2),
    ("matern32", 2),
    ("matern52", 2),
    ("rq", 2),
    ("iso-se", 2),
    ("iso-matern32", 2),
    ("matern32(lon, lat) * matern12(day)", 3),
    ("matern32(lon, lat) + linear(lat)", 3),
    ("iso-matern52(lon, lat) * periodic(day) + rq(day)", 3),
    ("se(lon, lat) * se(day) + matern12", 3),
    ("linear + periodic(lon) + iso-rq(lat, day)", 3),
)


def with_kernel(kernel: str, dimension: int) -> Record:
    """A few rounds of training, and what is asked of kernels: covariances, and derivatives."""
    fleet = calls.new_fleet(
        data.field(75, 3, dimension=dimension), kernel=kernel, normalize=True, inputs=_DAYS[:dimension]
    )
    queries = np.column_stack([QUERIES, np.arange(len(QUERIES)) + 0.5])[:, :dimension]
    record = {"fit": calls.train(fleet, "dec-fact-gp", rounds=8, tol=0.0)}
    for method in ("dec-nn-grbcm", "dec-npae", "dec-nearest"):
        record[method] = calls.predict(fleet, queries, method)
    record["joint"] = calls.joint(fleet, queries, "dec-rbcm")
    if kernel != "matern12":
        record["gradient"] = calls.gradient(fleet, queries, "full-gp")
    return record


for name, dimension in KERNELS:
    add(f"kernel {name}", with_kernel, name, dimension)


def chosen_of(kernels: Any, method: str, **how: Any) -> Record:
    return trained(data.field(90, 3), method, how, kernel=kernels, normalize=True)


add("kernel auto", chosen_of, "auto", "dec-fact-gp", tol=1e-3)
add("kernels of a list", chosen_of, ["se", "matern32", "rq + linear"], "fact-gp", tol=1e-3)
add("kernels of a list by dec-apx-gp", chosen_of, ["se", "matern12"], "dec-apx-gp", tol=1e-2, rounds=40)


@configuration
def an_input_without_effect(folder: Path) -> Record:
    """The likelihood is flat along its length-scale."""
    x, y = data.rows_of(60, seed=6)
    y = np.sin(3.0 * x[:, 0]).round(6) + 0.1 * (np.arange(60) % 3)
    return trained(data.stripes(x, y, agents=3), "dec-fact-gp", {"theta0": START}, kernel="matern52", normalize=True)


# ---- means and coordinates ---------------------------------------------------------------------------------------

model: dict[str, Any]
for mean in ("constant", "linear"):
    for method in ("dec-fact-gp", "full-gp"):
        how = {"theta0": START, "tol": 1e-4, "engine": "auto" if method == "full-gp" else "dense"}
        model = {"mean": mean, "kernel": "matern32"}
        add(f"mean {mean} by {method}", trained, data.TILTED, method, how, "dec-nn-grbcm", **model)


@configuration
def mean_linear_by_few_rounds(folder: Path) -> Record:
    fleet = calls.new_fleet(data.TILTED, mean="linear", normalize=True, kernel="matern32", graph="cycle")
    fit = calls.train(fleet, "dec-apx-gp", theta0=START, rounds=15, tol=0.0)
    return {"fit": fit, "gradient": calls.gradient(fleet, QUERIES, "dec-rbcm")}


@configuration
def mean_constant_by_moments(folder: Path) -> Record:
    fleet = calls.new_fleet(data.TILTED, mean="constant", normalize=True, kernel="se")
    fit = calls.train(fleet, "dec-full-gp", theta0=START, engine="auto")
    return {"fit": fit, "answer": calls.predict(fleet, QUERIES, "dec-full-gp")}


_PLACES = np.array([[10.1, 54.05], [10.3, 54.3], [10.55, 54.2], [11.5, 55.0]])


def on_coordinates(shards: list[Any], places: Any, method: str, how: dict[str, Any], **model: Any) -> Record:
    fleet = calls.new_fleet(shards, inputs=["lon", "lat"], **model)
    record = {"fit": calls.train(fleet, method, **how)}
    for predictor in ("dec-nn-grbcm", "dec-nearest"):
        record[predictor] = calls.predict(fleet, places, predictor)
    record["gradient"] = calls.gradient(fleet, places, "dec-rbcm")
    record["map"] = calls.map_of(fleet, (4, 3), "dec-rbcm")
    return record


_ACROSS = np.array([[179.9, 54.05], [-179.9, 54.3], [-179.7, 54.2]])
for name, shards, places, coordinates, kernel, mean in (
    ("scaled", data.on_map(), _PLACES, "scaled", "iso-matern32", "zero"),
    ("kilometres", data.on_map(), _PLACES, "kilometres", "matern32", "zero"),
    ("kilometres with a linear mean", data.on_map(), _PLACES, "kilometres", "iso-matern32", "linear"),
    ("kilometres across 180 degrees", data.on_map(west=179.8), _ACROSS, "kilometres", "iso-matern52", "zero"),
    ("as given across 180 degrees", data.on_map(west=179.8), _ACROSS, "as-given", "se", "constant"),
    ("the sphere", data.on_globe(), _ACROSS, "sphere", "iso-matern32(lon, lat)", "zero"),
    ("the sphere with a constant mean", data.on_globe(), _ACROSS, "sphere", "iso-se(lon, lat)", "constant"),
):
    model = {"coordinates": coordinates, "kernel": kernel, "mean": mean, "normalize": True, "graph": "places"}
    how = {"tol": 1e-3}
    add(f"coordinates: {name}", on_coordinates, shards, places, "dec-fact-gp", how, **model)
add(
    "coordinates: kilometres by dec-apx-gp",
    on_coordinates,
    data.on_map(),
    _PLACES,
    "dec-apx-gp",
    {"rounds": 15, "tol": 0.0, "theta0": [10.0, 8.0, 1.0, 0.3]},
    coordinates="kilometres",
    kernel="matern32",
    normalize=True,
)


# ---- noise that differs ------------------------------------------------------------------------------------------


def noisy(shards: list[Any], method: str, how: dict[str, Any], **model: Any) -> Record:
    fleet = calls.new_fleet(shards, **{"kernel": "matern32", "normalize": True, "graph": "cycle", **model})
    record = {"fit": calls.train(fleet, method, **how)}
    for predictor in ("dec-nn-grbcm", "dec-npae", "dec-nearest", "full-gp"):
        record[predictor] = calls.predict(fleet, QUERIES, predictor, observed=True)
    record["joint"] = calls.joint(fleet, QUERIES, "dec-rbcm", observed=True, agent=1)
    record["gradient"] = calls.gradient(fleet, QUERIES, "dec-nearest")
    record["calibration"] = calls.calibrate(fleet, "dec-rbcm", holdout="rows", max_rows=20)
    record["validation"] = calls.cross_validate(fleet, "random", "dec-rbcm", False)
    calls.observe(fleet, 0, [[0.5, 0.5]], [0.7], [0.3] if len(shards[0]) > 2 else None)
    return {**record, "later": calls.predict(fleet, QUERIES, "dec-nn-grbcm")}


for name, shards, model in (
    ("known", data.KNOWN_NOISE, {}),
    ("of agents", data.PLAIN, {"noise": "agents"}),
    ("of groups", data.PLAIN, {"noise": ["good", "cheap", "good"]}),
    ("known and of groups", data.KNOWN_NOISE, {"noise": ["good", "cheap", "good"], "kernel": "se"}),
    ("with outliers", data.STUCK, {"robust": True}),
    ("known, of agents, with outliers", data.with_known_noise(data.STUCK), {"robust": True, "noise": "agents"}),
):
    add(f"noise {name}", noisy, shards, "dec-fact-gp", {"tol": 1e-3}, **model)
_FEW = {"rounds": 12, "tol": 0.0, "theta0": START}
add("noise known by dec-apx-gp", noisy, data.KNOWN_NOISE, "dec-apx-gp", _FEW, kernel="se", normalize=False)
_FEW_OF_GROUPS = {"rounds": 12, "tol": 0.0, "theta0": [*START, 0.3, 0.2]}
add("noise of agents by dec-gapx-gp", noisy, data.PLAIN, "dec-gapx-gp", _FEW_OF_GROUPS, noise="agents")
add("noise with outliers by fact-gp", noisy, data.STUCK, "fact-gp", {"tol": 1e-3}, robust=True)


# ---- engines -----------------------------------------------------------------------------------------------------


def by_engine(engine: str, kernel: str, rows: int, agents: int, how: dict[str, Any], neighbours: int = 30) -> Record:
    fleet = calls.new_fleet(
        data.field(rows, agents), kernel=kernel, normalize=True, graph="cycle" if agents > 2 else "path"
    )
    given: dict[str, Any] = {"engine": engine, "n_neighbours": neighbours}
    record = {"fit": calls.train(fleet, "dec-fact-gp", **given, **how)}
    for method in ("dec-nn-grbcm", "dec-rbcm", "dec-npae"):
        record[method] = calls.predict(fleet, QUERIES, method, **given)
    record["joint"] = calls.joint(fleet, QUERIES, "dec-rbcm", **given)
    record["gradient"] = calls.gradient(fleet, QUERIES, "dec-rbcm", **given)
    calls.observe(fleet, 0, [[0.5, 0.5], [0.4, 1.5]], [0.7, 0.1])
    return {**record, "later": calls.predict(fleet, QUERIES, "dec-rbcm", **given)}


_BRIEF: dict[str, Any] = {"theta0": START, "rounds": 6, "tol": 0.0}
add("engine moments", by_engine, "moments", "se", 900, 3, _BRIEF)
add("engine auto of many rows", by_engine, "auto", "se", 2400, 3, _BRIEF)
add("engine dense of many rows", by_engine, "dense", "matern52", 600, 2, _BRIEF)
add("engine auto of few rows", by_engine, "auto", "matern32", 90, 3, _BRIEF)
add("engine vecchia", by_engine, "vecchia", "matern32", 300, 3, _BRIEF, 10)
add("engine vecchia of se", by_engine, "vecchia", "se", 240, 3, _BRIEF, 12)
_SUM = "matern32(1) * matern12(2) + linear(1)"
_SUM_START = {"rounds": 5, "tol": 0.0}
add("engine vecchia of a sum", by_engine, "vecchia", _SUM, 180, 3, _SUM_START, 8)


@configuration
def engine_vecchia_with_noise_that_differs(folder: Path) -> Record:
    fleet = calls.new_fleet(
        data.with_known_noise(data.field(180, 3)), kernel="matern32", noise="agents", normalize=True
    )
    given: dict[str, Any] = {"engine": "vecchia", "n_neighbours": 10}
    record = {"fit": calls.train(fleet, "dec-fact-gp", rounds=5, tol=0.0, **given)}
    return {**record, "answer": calls.predict(fleet, QUERIES, "dec-rbcm", **given)}


@configuration
def engine_auto_of_rows_that_are_sampled_first(folder: Path) -> Record:
    """Beyond 1,500 rows an agent trains on a sample first."""
    fleet = calls.new_fleet(data.field(1700, 1), kernel="matern32", normalize=True)
    record = {"fit": calls.train(fleet, "dec-fact-gp", engine="auto", rounds=12, tol=1e-3)}
    return {**record, "answer": calls.predict(fleet, QUERIES, "dec-rbcm", engine="auto")}


@configuration
def moments_of_the_whole_fleet(folder: Path) -> Record:
    """dec-full-gp, more rows, and a training that continues from its moments."""
    fleet = calls.new_fleet(data.field(400, 4), graph="star", normalize=True)
    record: Record = {"fit": calls.train(fleet, "dec-full-gp", theta0=START, engine="auto")}
    record["answer"] = calls.predict(fleet, QUERIES, "dec-full-gp")
    record["joint"] = calls.joint(fleet, QUERIES[:5], "dec-full-gp")
    record["fine"] = calls.predict(fleet, QUERIES, "dec-full-gp", theta=[0.3, 0.2, 1.0, 0.1])
    calls.observe(fleet, 2, [[0.6, 0.6], [2.3, 0.2]], [0.4, 0.5])
    record["later"] = calls.predict(fleet, QUERIES, "dec-full-gp")
    record["again"] = calls.train(fleet, "dec-full-gp", theta0=THETA, engine="auto")
    return {**record, "last": calls.predict(fleet, QUERIES, "dec-full-gp", agent=1, observed=True)}
