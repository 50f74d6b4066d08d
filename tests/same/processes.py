"""The command line with every option, fleets of processes, and a cluster: some take ten seconds and more."""

from __future__ import annotations

import json
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.same import calls, data
from tests.same.calls import Record, as_recorded, command
from tests.same.data import QUERIES, START, Shard
from tests.same.registry import add_in_folder, configuration

#: The longest that processes may take to train, in seconds: on any machine only a hang is longer.
LONG = 300.0

#: Of `fleetgp fit`.
FIT: dict[str, Any] = {
    "inputs": ["a", "b"],
    "target": "y",
    "graph": "cycle",
    "normalize": True,
    "kernel": "matern32",
    "mean": "zero",
    "coordinates": "as-given",
    "missing": "refuse",
    "fill": "none",
    "time_unit": "days",
    "rounds": 2000,
    "tol": 1e-3,
    "noise_floor": 1e-3,
    "engine": "dense",
    "n_neighbours": 30,
    "seed": 0,
    "quiet": True,
}
#: Of answers: names of files say nothing of results.
PLACES = ("model", "out")


def _run(folder: Path, name: str, *arguments: str, **options: Any) -> Record:
    """What a command prints with --json, but for the names of files."""
    typed: list[str] = []
    for option, value in options.items():
        values = value if isinstance(value, list) else [] if value is True else [value]
        typed += [f"--{option.replace('_', '-')}", *map(str, values)]
    printed = json.loads(command(name, *arguments, *typed, "--json", folder=folder))
    record: Record = as_recorded({name: value for name, value in printed.items() if name not in PLACES})
    return record


def _table(file: Path) -> Record:
    """The columns of a table."""
    import pandas as pd

    read = pd.read_csv(file)
    record: Record = as_recorded({str(name): read[name].to_numpy() for name in read.columns})
    return record


def _write(folder: Path, shards: list[Shard]) -> None:
    """observations.csv with a column who, points.csv, and truth.csv with other observations."""
    import pandas as pd

    data.frame(shards).to_csv(folder / "observations.csv", index=False)
    pd.DataFrame({"b": QUERIES[:, 1], "a": QUERIES[:, 0]}).to_csv(folder / "points.csv", index=False)
    data.frame(data.field(30, 3, seed=9)).to_csv(folder / "truth.csv", index=False)


@configuration
def commands_of_a_model(folder: Path) -> Record:
    """fit, predict, calibrate, score and sample."""
    _write(folder, data.field(90, 3))
    points, truth, dense = "points.csv", "truth.csv", {"engine": "dense", "n_neighbours": 30}
    known: dict[str, Any] = {"training": "dec-fact-gp", "bound": "l_a=0.1:5", "prior": "noise=0.2:3"}
    record: Record = {"fit": _run(folder, "fit", "observations.csv", agent_column="who", **FIT, **known, out="m")}
    ask: dict[str, Any] = {"method": "dec-nn-grbcm", "agent": "agent 1", "eta": 1e-3, "consensus": "tree", **dense}
    ask |= {"level": 0.9, "gradient": True, "out": "answer.csv", "quiet": True}
    record["predict"] = _run(folder, "predict", "m", points, **ask)
    record["answer"] = _table(folder / "answer.csv")
    hold: dict[str, Any] = {"holdout": "both", "level": 0.95, "cells": 100, "max_rows": 20}
    record["calibrate"] = _run(folder, "calibrate", "m", method="dec-rbcm", **hold, **dense)
    judge: dict[str, Any] = {"level": 0.95, "each_agent": True, "consensus": "tree", "quiet": True, **dense}
    record["score"] = _run(folder, "score", "m", truth, method="dec-rbcm", **judge)
    draw: dict[str, Any] = {"n": 3, "seed": 5, "method": "dec-rbcm", "out": "draws.csv", **dense}
    record["sample"] = _run(folder, "sample", "m", points, **draw)
    return {**record, "draws": _table(folder / "draws.csv")}


@configuration
def commands_of_moments(folder: Path) -> Record:
    """Several files in chunks and a map of them; rows of one file that are split, and where to measure next."""
    import xarray as xr

    for number, own in enumerate(data.field(180, 3)):
        data.frame([own]).drop(columns="who").to_csv(folder / f"boat{number}.csv", index=False)
    _write(folder, data.field(90, 3))
    whole: dict[str, Any] = {**FIT, "kernel": "se", "engine": "auto", "training": "dec-full-gp", "out": "m"}
    record: Record = {"fit": _run(folder, "fit", *(f"boat{number}.csv" for number in range(3)), **whole)}
    place: dict[str, Any] = {"grid": "5x4", "box": [0, 0, 2, 2], "within": "inf", "out": "map.nc", "quiet": True}
    record["map"] = _run(folder, "map", "m", method="dec-full-gp", engine="auto", **place)
    with xr.open_dataset(folder / "map.nc") as drawn:
        record["cells"] = as_recorded({str(name): np.asarray(drawn[name].values) for name in drawn.data_vars})
    split: dict[str, Any] = {"n_agents": 3, "partition": "stripes", "axis": "b", "training": "dec-apx-gp"}
    record["split"] = _run(folder, "fit", "observations.csv", **FIT, **split, out="n")
    best: dict[str, Any] = {
        "n": 2,
        "criterion": "mutual-information",
        "all": True,
        "engine": "dense",
        "n_neighbours": 30,
    }
    record["suggest"] = _run(folder, "suggest", "n", "points.csv", method="dec-rbcm", **best, out="next.csv")
    return {**record, "next": _table(folder / "next.csv")}


# ---- a process for each agent ------------------------------------------------------------------------------------

HEAD = """\
name = "same"
inputs = ["a", "b"]
target = "y"
kernel = "{kernel}"
normalize = true
mean = "{mean}"
coordinates = "as-given"
{noise}
robust = false
seed = 0
state = "state"
checkpoint_rounds = 10

[training]
method = "{training}"
theta0 = {theta0}
rounds = 2000
tol = {tol}
noise_floor = 1e-3
engine = "dense"
n_neighbours = 30
retrain_on_membership_change = true
calibrate = "{calibrate}"
again_after = 0

[prediction]
method = "dec-nn-grbcm"
consensus = "tree"
eta = 1e-3
n_neighbours = 30
engine = "dense"

[timeouts]
connect = 120
round = 120
lease = 60
ask = 120
"""
AGENT = """
[[agent]]
name = "a{number}"
endpoint = "tcp/127.0.0.1:{port}"
data = "a{number}.csv"
missing = "refuse"
fill = []
watch = false
show_rows = false
neighbours = [{neighbours}]
"""


def _write_fleet(folder: Path, shards: list[Shard], edges: list[tuple[int, int]], **head: Any) -> None:
    import pandas as pd

    parts = [HEAD.format(**head)]
    held = [socket.socket() for _ in shards]
    for one in held:
        one.bind(("127.0.0.1", 0))
    for number, ((x, y, *known), one) in enumerate(zip(shards, held, strict=True)):
        columns = {"a": x[:, 0], "b": x[:, 1], "y": y, **({"error": known[0]} if known else {})}
        pd.DataFrame(columns).to_csv(folder / f"a{number}.csv", index=False)
        others = sorted({b for a, b in edges if a == number} | {a for a, b in edges if b == number})
        neighbours = ", ".join(f'"a{other}"' for other in others)
        parts.append(AGENT.format(number=number, port=one.getsockname()[1], neighbours=neighbours))
    for one in held:
        one.close()
    (folder / "fleet.toml").write_text("".join(parts), encoding="utf-8")


def _states(folder: Path) -> Record:
    """What every agent knows once all of them serve the same model."""
    deadline = time.monotonic() + LONG
    while True:
        states = json.loads(command("status", "fleet.toml", "--json", folder=folder))["agents"]
        agents = list(states)
        settled = all(
            one.get("phase") == "serving" and one["trained"] and one["trained"]["by"] == agents
            for one in states.values()
        )
        if settled and len({one["trained"]["id"] for one in states.values()}) == 1:
            names = ("method", "status", "rounds", "kernel", "calibrated")
            return {
                agent: {
                    "theta": one["theta"],
                    "rows": one["rows"],
                    **as_recorded({name: one["trained"][name] for name in names}),
                }
                for agent, one in states.items()
            }
        if time.monotonic() > deadline:
            raise RuntimeError(f"not trained within {LONG:g} s: {states}")


def _ask(folder: Path, agent: str, **options: Any) -> Record:
    printed = _run(folder, "ask", "fleet.toml", "points.csv", agent=agent, out="answer.csv", quiet=True, **options)
    printed["trained"].pop("id", None)  # another one in every run
    return {"printed": printed, "answer": _table(folder / "answer.csv")}


@configuration
def processes_of_five_agents(folder: Path) -> Record:
    """Train, ask twice, add rows, and ask again."""
    import pandas as pd

    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)]
    how = {"training": "dec-apx-gp", "theta0": START, "tol": 1e-4, "calibrate": "no"}
    shards = data.field(100, 5)
    _write_fleet(folder, shards, edges, kernel="se", mean="zero", noise="", **how)
    _write(folder, shards)
    x, y = data.rows_of(3, seed=8)
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y}).to_csv(folder / "new.csv", index=False)
    try:
        command("up", "fleet.toml", "--detach", folder=folder)
        record: Record = {"trained": _states(folder)}
        record["first"] = _ask(folder, "a1")
        record["second"] = _ask(folder, "a3", method="dec-npae")
        command("observe", "fleet.toml", "new.csv", "--agent", "a2", folder=folder)
        record["third"] = _ask(folder, "a1")
    finally:
        command("down", "fleet.toml", folder=folder)
    return record


@configuration
def processes_of_three_agents(folder: Path) -> Record:
    """Sums along a tree, a mean function, known noise, noise of agents, and a calibration."""
    shards = data.with_known_noise(data.with_level(data.field(90, 3), 4.0, (1.0, 0.0)))
    noise = 'deviation = "error"\nnoise = "agents"'
    how = {"training": "dec-fact-gp", "theta0": [*START, 0.3, 0.4], "tol": 1e-3, "calibrate": "rows"}
    _write_fleet(folder, shards, [(0, 1), (1, 2)], kernel="matern32", mean="linear", noise=noise, **how)
    _write(folder, shards)
    try:
        command("up", "fleet.toml", "--detach", folder=folder)
        record: Record = {"trained": _states(folder)}
        record["first"] = _ask(folder, "a0")
        record["second"] = _ask(folder, "a2", method="dec-nearest")
    finally:
        command("down", "fleet.toml", folder=folder)
    return record


# ---- a cluster ---------------------------------------------------------------------------------------------------


def on_cluster(backend: str, folder: Path) -> Record:
    """Three workers of a Ray cluster, each with two agents; then files that two workers read."""
    where: dict[str, Any] = {"backend": backend, "workers": 3 if backend == "ray" else None}
    with calls.new_fleet(data.field(90, 6), graph="cycle", kernel="matern32", normalize=True, **where) as fleet:
        record: Record = {
            "tree": calls.train(fleet, "dec-fact-gp", tol=1e-3),
            "edges": calls.train(fleet, "dec-apx-gp", theta0=START, rounds=15, tol=0.0),
            "server": calls.train(fleet, "apx-gp", theta0=START, rounds=10, tol=0.0),
        }
        for method in ("dec-nn-grbcm", "dec-npae", "dec-nearest", "rbcm"):
            record[method] = calls.predict(fleet, QUERIES, method)
        record["asked"] = calls.predict(fleet, QUERIES, "dec-nn-rbcm", agent=4)
        calls.observe(fleet, 3, [[0.5, 0.5], [0.4, 1.5]], [0.7, 0.1])
        record["later"] = calls.predict(fleet, QUERIES, "dec-nn-grbcm")
        record["average"] = calls.predict(fleet, QUERIES, "dec-rbcm", consensus="average", rounds=40, tol=1e-4)
    for number, own in enumerate(data.field(240, 3)):
        data.frame([own]).to_csv(folder / f"boat{number}.csv", index=False)
    where["workers"] = 2 if backend == "ray" else None
    with calls.fleet_of_files(str(folder / "*.csv"), kernel="se", normalize=True, rows=37, **where) as fleet:
        record["files"] = calls.train(fleet, "dec-full-gp", theta0=START, engine="auto")
        record["of files"] = calls.predict(fleet, QUERIES, "dec-full-gp")
    return record


add_in_folder("a cluster", partial(on_cluster, "ray"))
add_in_folder("what is on a cluster, here", partial(on_cluster, "in-process"))
