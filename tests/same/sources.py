"""Where rows come from and models go: streams, files, tables, estimators, folders; and advice."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir
from typing import Any

import numpy as np

from tests.same import calls, data
from tests.same.calls import Record
from tests.same.data import QUERIES, START, THETA
from tests.same.registry import add, add_in_folder, configuration

# ---- rows that come later ----------------------------------------------------------------------------------------


def streamed(method: str, kernel: str, engine: str, **model: Any) -> Record:
    """Rows come one by one and in blocks, to several agents, between questions; then the fleet trains again."""
    fleet = calls.new_fleet(data.field(80, 4), kernel=kernel, **model)
    given: dict[str, Any] = {} if method == "dec-nearest" else {"engine": engine, "n_neighbours": 15}
    record: Record = {}
    if model.get("theta") is None:
        record["fit"] = calls.train(fleet, "dec-fact-gp", theta0=START, tol=1e-3, engine=engine, n_neighbours=15)
    record["0"] = calls.predict(fleet, QUERIES, method, **given)
    x, y = data.rows_of(24, seed=8)
    ends = np.cumsum([1, 6, 1, 11, 5])
    for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        calls.observe(fleet, (3 * number) % 4, x[start:end], y[start:end])
        record[str(number + 1)] = calls.predict(fleet, QUERIES, method, **given)
    calls.observe(fleet, 2, [[2.6, 2.4]], [0.3])  # beyond the box of all others
    record["outside"] = calls.predict(fleet, QUERIES, method, **given)
    how = {"theta0": THETA, "rounds": 5, "tol": 0.0, "engine": engine, "n_neighbours": 15}
    return {**record, "again": calls.train(fleet, "dec-fact-gp", **how)}


model: dict[str, Any]
for method, kernel, engine, model in (
    ("dec-nn-grbcm", "matern32", "dense", {"theta": THETA}),
    ("dec-rbcm", "se", "moments", {"theta": THETA, "graph": "cycle"}),
    ("dec-nn-rbcm", "matern32", "vecchia", {"theta": THETA}),
    ("dec-summary", "matern32", "dense", {"theta": THETA}),
    ("dec-nearest", "matern12", "dense", {"theta": THETA}),
    ("dec-npae", "se", "dense", {"theta": THETA}),
    ("dec-nn-grbcm", "matern52", "dense", {"normalize": True}),
    ("dec-poe", "matern32", "dense", {"normalize": True, "mean": "linear"}),
    ("dec-nn-rbcm", "matern32", "auto", {"normalize": True, "coordinates": "scaled", "theta": THETA}),
):
    after = "a training" if "theta" not in model else "none"
    seen = "".join(f", {model[name]}" for name in ("mean", "coordinates") if name in model)
    add(f"streaming {kernel} by {engine} and {method} after {after}{seen}", streamed, method, kernel, engine, **model)


# ---- files, tables and datasets ----------------------------------------------------------------------------------


def write_files(folder: Path, shards: list[Any], kind: str) -> str:
    for number, own in enumerate(shards):
        table = data.frame([own]).drop(columns="who")
        place = folder / f"boat{number}.{kind}"
        if kind == "csv":
            table.to_csv(place, index=False)
        elif kind == "parquet":
            table.to_parquet(place)
        else:
            table.rename_axis("row").to_xarray().to_netcdf(place)
    return str(folder / f"boat*.{kind}")


def of_files(kind: str, method: str, options: dict[str, Any], folder: Path) -> Record:
    pattern = write_files(folder, data.field(240, 3), kind)
    fleet = calls.fleet_of_files(pattern, kernel="se", normalize=True, graph="cycle", rows=37, **options)
    how: dict[str, Any] = {"theta0": START, "engine": "auto" if "full" in method else "dense"}
    record = {"fit": calls.train(fleet, method, **how)}
    for predictor in ("dec-full-gp", "dec-nn-grbcm"):
        record[predictor] = calls.predict(fleet, QUERIES, predictor)
    return record


options: dict[str, Any]
for kind, method, options in (
    ("csv", "dec-full-gp", {}),
    ("parquet", "full-gp", {"mean": "constant"}),
    ("csv", "dec-fact-gp", {}),
    ("nc", "dec-fact-gp", {}),
    ("parquet", "dec-full-gp", {"coordinates": "scaled"}),
):
    named = "".join(f", {option}" for option in options)
    add_in_folder(f"files: {kind} in chunks by {method}{named}", partial(of_files, kind, method, options))


@configuration
def files_of_which_samples_are_drawn(_: Path) -> Record:
    """What is drawn depends on where the files are: they are always in the same place."""
    folder = Path(gettempdir(), "fleetgp-same")
    rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        return of_files("csv", "dec-fact-gp", {"sample": 30}, folder)
    finally:
        rmtree(folder)


@configuration
def files_with_a_cache(folder: Path) -> Record:
    """Read for the first time, and again with what was kept."""
    given = "csv", "dec-full-gp", {"cache": folder / "cache"}, folder
    return {"first": of_files(*given), "again": of_files(*given)}


@configuration
def files_with_a_column_of_agents(folder: Path) -> Record:
    whole = data.frame(data.field(120, 3))
    for number, rows in enumerate(np.array_split(np.arange(len(whole)), 2)):
        whole.iloc[rows].to_csv(folder / f"part{number}.csv", index=False, sep=";")
    files = [folder / "part0.csv", folder / "part1.csv"]
    fleet = calls.fleet_of_files(files, {"sep": ";"}, agent="who", rows=23, normalize=True, kernel="se")
    record: Record = {"labels": list(fleet.labels)}
    record["fit"] = calls.train(fleet, "dec-full-gp", theta0=START, engine="auto")
    return {**record, "answer": calls.predict(fleet, QUERIES, "dec-full-gp", agent="agent 1")}


@configuration
def a_table(folder: Path) -> Record:
    """Times, missing values, known noise, and a column of agents; then the same rows split in four ways."""
    import pandas as pd

    table = data.frame(data.field(60, 3))
    table["day"] = pd.to_datetime("2021-03-01") + pd.to_timedelta(np.arange(60) % 6, unit="h")
    table["error"] = 0.1 + 0.05 * (np.arange(60) % 3)
    table.loc[[3, 17], "y"] = np.nan
    what: dict[str, Any] = {"inputs": ["a", "b", "day"], "missing": "drop", "kernel": "matern32(a, b) * matern12(day)"}
    fleet = calls.fleet_of_frame(
        table, agent="who", deviation="error", noise="agents", time_unit="hours", normalize=True, **what
    )
    queries = table[["day", "b", "a"]].iloc[:4]
    record: Record = {"data": calls.of_data(fleet), "fit": calls.train(fleet, "dec-fact-gp", rounds=5, tol=0.0)}
    record["answer"] = calls.predict(fleet, queries, "dec-nn-rbcm", agent="agent 2")
    for by in ("stripes", "grid", "random", "kmeans"):
        axis = {"axis": "b"} if by == "stripes" else {}
        split = calls.fleet_of_frame(table, agents=4, by=by, missing="drop", seed=3, **axis)
        record[by] = calls.of_data(split)
    return record


@configuration
def a_dataset(folder: Path) -> Record:
    held = data.grid_dataset()
    what: dict[str, Any] = {"target": "sst", "agents": 3, "by": "stripes", "normalize": True}
    days = calls.fleet_of_dataset(held, theta=[0.3, 0.2, 2.0, 1.0, 0.1], **what)
    one = calls.fleet_of_dataset(
        held, date="2021-01-02", box=[10.1, 54.0, 10.9, 54.5], stride=2, coordinates="kilometres", **what
    )
    record: Record = {"days": calls.of_data(days), "one": calls.of_data(one)}
    record["fit"] = calls.train(one, "dec-fact-gp", tol=1e-3)
    cells = held.isel(time=0, lat=slice(0, 2), lon=slice(0, 3))
    record["answer"] = calls.predict(one, cells, "dec-nn-grbcm")
    return {**record, "days' answer": calls.predict(days, held.isel(lat=[1], lon=[3, 7]), "dec-rbcm")}


# ---- several targets, estimators, models, advice -----------------------------------------------------------------


def several(method: str, how: dict[str, Any], **model: Any) -> Record:
    fleet = calls.outputs(data.two_targets(), ["t", "s"], normalize=True, kernel="matern32", graph="cycle", **model)
    record = {"fits": calls.train_outputs(fleet, method, **how)}
    for predictor in ("dec-nn-grbcm", "dec-rbcm"):
        record[predictor] = calls.predict_outputs(fleet, QUERIES, predictor)
    return record


add("targets by dec-fact-gp", several, "dec-fact-gp", {"tol": 1e-3})
add("targets by fact-gp", several, "fact-gp", {"theta0": [0.9, 0.7, 1.2, 0.2, 1.0, 0.1]}, mean="constant")
_OF_TARGETS = {"theta0": [0.9, 0.7, 1.2, 0.2, 1.0, 0.1], "rounds": 12, "tol": 0.0}
add("targets by dec-apx-gp", several, "dec-apx-gp", _OF_TARGETS)


def estimated(queries: Any, n_agents: int | None, labels: bool, **options: Any) -> Record:
    x, y = data.rows_of(90, seed=7)
    model = calls.regressor(n_agents=n_agents, **options)
    agents = np.where(x[:, 0] < 0.7, "Ada", "Bo") if labels else None
    model.fit(x[:80], y[:80], agents=None if agents is None else agents[:80])
    record = {"fitted": calls.of_regressor(model, queries)}
    model.partial_fit(x[80:], y[80:], agents=None if agents is None else agents[80:])
    return {**record, "later": calls.of_regressor(model, queries)}


def estimated_with_their_kernel() -> Record:
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    kernel = ConstantKernel(1.5, "fixed") * Matern([0.5, 1.0], nu=2.5) + WhiteKernel(0.1)
    options: dict[str, Any] = {"partition": "stripes", "predictor": "dec-nearest", "engine": "auto"}
    return estimated(QUERIES, 3, False, kernel=kernel, **options)


add("estimator of one agent", estimated, QUERIES, None, False)
add("estimator of four agents", estimated, QUERIES, 4, False, kernel="se", predictor="dec-rbcm", observed=False)
add("estimator with labels", estimated, QUERIES, None, True, trainer="fact-gp", mean="linear")
add("estimator with a kernel of scikit-learn", estimated_with_their_kernel)


def kept(method: str, predictor: str, shards: list[Any], model: dict[str, Any], folder: Path) -> Record:
    """A model that is saved and read; then it goes on."""
    fleet = calls.new_fleet(shards, normalize=True, graph="cycle", **model)
    calls.train(fleet, method, **_SAVED)
    calibration = calls.calibrate(fleet, "dec-rbcm", holdout="rows", max_rows=20)
    calls.save(fleet, folder / "model", ["Ada", "Bo", "Cy"], ["lon", "lat"], "sst")
    again = calls.load(folder / "model")
    record = {"calibration": calibration, "model": calls.of_model(again)}
    for name, one in (("written", fleet), ("read", again)):
        answers = {"answer": calls.predict(one, QUERIES, predictor), "rbcm": calls.predict(one, QUERIES, "dec-rbcm")}
        calls.observe(one, 1, [[0.5, 0.5]], [0.7], [0.1] if len(shards[0]) > 2 else None)
        record[name] = {**answers, "later": calls.predict(one, QUERIES, predictor)}
    return record


_SAVED: dict[str, Any] = {"tol": 1e-3, "rounds": 60, "engine": "auto"}
for name, method, predictor, shards, model in (
    ("of a training", "dec-fact-gp", "dec-nn-grbcm", data.TILTED, {"kernel": "matern32", "mean": "linear"}),
    ("of moments", "dec-full-gp", "dec-full-gp", data.field(240, 3), {"kernel": "se"}),
    (
        "with noise that differs",
        "dec-fact-gp",
        "dec-nearest",
        data.KNOWN_NOISE,
        {"kernel": "matern32", "noise": "agents"},
    ),
    ("of dec-apx-gp", "dec-apx-gp", "dec-npae", data.PLAIN, {"kernel": "se", "coordinates": "scaled"}),
):
    add_in_folder(f"model {name}", partial(kept, method, predictor, shards, model))


@configuration
def advice_of_a_fleet_with_private_rows(folder: Path) -> Record:
    fleet = calls.new_fleet(data.field(240, 3), kernel="matern32", normalize=True, private="rows", graph="places")
    return {"advice": calls.recommend(fleet)}


@configuration
def private_rows(folder: Path) -> Record:
    """Nothing that would send a row; calibrated by means over groups of rows."""
    fleet = calls.new_fleet(data.field(150, 3), kernel="matern32", normalize=True, private="rows", graph="places")
    record = {"fit": calls.train(fleet, "dec-fact-gp", tol=1e-3)}
    record["calibration"] = calls.calibrate(fleet, "dec-nn-rbcm", holdout="both", max_rows=40)
    return {**record, "answer": calls.predict(fleet, QUERIES, "dec-nn-rbcm")}


@configuration
def what_is_asked_by_default(folder: Path) -> Record:
    """Of a fleet whose rows are private, and of one whose rows are not."""
    return {
        str(private): calls.predict_by_default(
            calls.new_fleet(data.field(150, 3), kernel="matern32", normalize=True, private=private, theta=THETA),
            QUERIES,
        )
        for private in ("rows", None)
    }


def advised(sizes: list[int], **options: Any) -> Record:
    return {"advice": calls.recommend(sizes, **options)}


_LINK = "9600 bit/s, 2 s, 5 %, half duplex"
given: dict[str, Any]
for name, sizes, given in (
    ("of a smooth field", [200] * 6, {"graph": "path", "dimension": 2, "kernel": "se"}),
    ("over slow links", [500] * 5, {"graph": "star", "dimension": 2, "kernel": "matern32", "link": _LINK}),
    ("of unknown smoothness", [60, 90, 40], {"graph": "cycle", "dimension": 3, "private": "rows"}),
    ("with likelihoods that are private", [300] * 4, {"graph": "complete", "dimension": 2, "private": "likelihoods"}),
    (
        "of the best",
        [3000] * 4,
        {"graph": "grid", "dimension": 1, "kernel": "matern12", "accuracy": "best", "agent": 2},
    ),
    ("of the cheapest", [300] * 9, {"graph": "grid", "dimension": 2, "kernel": "se", "accuracy": "cheap"}),
):
    add(f"advice {name}", advised, sizes, **given)


@configuration
def advice_of_a_fleet_with_all(folder: Path) -> Record:
    fleet = calls.new_fleet(
        data.on_map(), inputs=["lon", "lat"], mean="linear", coordinates="kilometres", normalize=True
    )
    return {"advice": calls.recommend(fleet, link="1 kB/s, 100 ms")}


@configuration
def verification(folder: Path) -> Record:
    fleet = calls.new_fleet(data.field(90, 3), normalize=True, kernel="matern32")
    calls.train(fleet, "dec-fact-gp", engine="auto", tol=1e-5)
    return {"checks": calls.verify(fleet, ["dec-rbcm", "dec-nn-grbcm", "dec-nearest"])}


@configuration
def synthetic_fields(folder: Path) -> Record:
    x, y = data.rows_of(50, seed=3)
    record = {"field": calls.synthetic_field(60, (1.2, 0.3, 1.3, 0.1), 1)}
    record["one input"] = calls.synthetic_field(30, (0.5, 1.0, 0.2), 2)
    return {**record, **{by: calls.partition(x, y, 4, by) for by in ("stripes", "grid", "random", "kmeans")}}
