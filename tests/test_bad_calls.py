"""What a caller gets who is mistaken: one error, in one line that says what was expected, and what came."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetgp as fg
from fleetgp.io import load_sst, read_edges, read_observations
from tests.conftest import paper_shards

THETA = [1.2, 0.3, 1.3, 0.1]
SHARDS = paper_shards(60, 2)
X, Y = SHARDS[0]
POINTS = [[0.5, 0.5]]
BOTH = [(x, np.column_stack([y, y])) for x, y in SHARDS]
MASKED = np.ma.masked_array(Y, np.arange(len(Y)) == 3)
MISSING = pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [1.0, 2.0]})
TABLE_OF_BOATS = pd.DataFrame({"lon": X[:, 0], "lat": X[:, 1], "sst": Y, "boat": ["Ada", "Bo"] * 15})
SEA = xr.DataArray(Y[:6].reshape(2, 3), {"lat": [40.0, 41.0], "lon": [1.0, 2.0, 3.0]}, ("lat", "lon"), name="sst")
#: The library for callers whom no type checker has stopped.
gp: Any = fg
INPUT, GRAPH = fg.InputError, fg.GraphError
Bad = tuple[Callable[[], object], type[Exception], str]


def fleet(**options: Any) -> Any:
    return fg.Fleet(SHARDS, **{"kernel": "se", "normalize": False, "theta": THETA, **options})


def train(**options: Any) -> fg.Fit:
    return fg.Fleet(SHARDS, kernel="se", normalize=False).train(**{"theta0": THETA, "rounds": 2, **options})


def model(**options: Any) -> fg.Model:
    return fg.Model(**{"fleet": fleet(), "agents": ("a", "b"), "inputs": ("u", "v"), "target": "t", **options})


def frame(given: Any = None, **options: Any) -> fg.Fleet:
    table = TABLE_OF_BOATS if given is None else given
    return fg.Fleet.from_frame(
        table, **{"kernel": "se", "normalize": False, "inputs": ["lon", "lat"], "target": "sst", **options}
    )


def answer() -> Any:
    return fleet().predict(POINTS, "dec-rbcm")


def advice(**options: Any) -> Any:
    return fg.recommend([10, 20], **{"dimension": 2, **options})


DATA: list[Bad] = [
    (lambda: gp.Fleet([], kernel="se", normalize=False), INPUT, "shards must be a list of (X_i, y_i), one per agent"),
    (lambda: gp.Fleet([X], kernel="se", normalize=False), INPUT, "agent 0: expected a pair (X, y), got ndarray"),
    (
        lambda: gp.Fleet([(X, Y[:3])], kernel="se", normalize=False),
        INPUT,
        "agent 0: X must be (N, D) and y (N,), but their shapes are",
    ),
    (
        lambda: gp.Fleet([(X, Y), (X[:, :1], Y)], kernel="se", normalize=False),
        INPUT,
        "agent 1: X has 1 columns, but agent 0 has 2",
    ),
    (
        lambda: gp.Fleet([(X[:0], Y[:0])], kernel="se", normalize=False),
        INPUT,
        "no agent has data: expected at least one point in the fleet",
    ),
    (
        lambda: gp.Fleet([(X, 1j * Y)], kernel="se", normalize=False),
        INPUT,
        "agent 0: y: expected a numeric array, got complex numbers: give",
    ),
    (
        lambda: gp.Fleet([(X, MASKED)], kernel="se", normalize=False),
        INPUT,
        "agent 0: y has masked values in 1 of 30 rows (first: row 3)",
    ),
    (
        lambda: gp.Fleet([(MISSING, [1, 2])], kernel="se", normalize=False),
        gp.InputError,
        "agent 0: X has missing values in 1 of 2 rows (first: row 1",
    ),
    (
        lambda: gp.Fleet([(X, np.where(Y > 0, Y, np.nan))], kernel="se", normalize=False),
        INPUT,
        "agent 0: y has NaN or infinite values in",
    ),
    (
        lambda: gp.Fleet([(X * 1e200, Y)], kernel="se", normalize=False),
        INPUT,
        "agent 0: X has values beyond 1e100 in 30 of 30 rows",
    ),
    (
        lambda: gp.Fleet([(X, ["a"] * 30)], kernel="se", normalize=False),
        gp.InputError,
        "agent 0: y: expected a numeric array, got text: give numbers",
    ),
    (
        lambda: gp.Fleet([(X, Y > 0)], kernel="se", normalize=False),
        INPUT,
        "agent 0: y: expected a numeric array, got true and false: give 0",
    ),
    (
        lambda: gp.Fleet([(X, Y, -(Y**2))], kernel="se", normalize=False),
        INPUT,
        "agent 0: s: expected standard deviations of at least 0, got",
    ),
    (
        lambda: gp.Fleet([(X, Y, Y**2), (X, Y)], kernel="se", normalize=False),
        INPUT,
        "agent 1: expected (X, y, s) with known deviations s",
    ),
    (lambda: fleet(inputs="ab"), INPUT, "inputs: expected a list of names, got 'ab'"),
    (lambda: fleet(inputs=3), INPUT, "inputs: expected a list of names, got 3"),
    (lambda: fleet(inputs=["a"]), INPUT, "expected a name for each of the 2 inputs, got a"),
    (lambda: fleet(inputs=["a", "a"]), INPUT, "inputs: expected different names, got a, a"),
    (lambda: gp.partition(X, Y, agents=0), INPUT, "agents must lie between 1 and the 30 points, got 0"),
    (lambda: gp.partition(X, Y, agents=2.0), INPUT, "agents must be a whole number of at least 0, got 2.0"),
    (lambda: gp.partition(X, Y, agents=2, by="rows"), INPUT, "unknown partition 'rows': choose one of stripes"),
    (
        lambda: gp.partition(X, Y, agents=2, axis=2),
        gp.InputError,
        "axis must name one of the 2 input dimensions, got 2",
    ),
    (lambda: gp.partition(X, Y, agents=2, by="grid", axis=1), INPUT, "axis is for stripes, got by='grid': leave"),
    (lambda: gp.data.partition_by_label(X, Y, ["a"]), INPUT, "expected one label per row (30), got 1"),
    (lambda: gp.data.partition_by_label(X, Y, 7), INPUT, "expected one label per row (30), got 7"),
    (lambda: gp.synthetic_field(0), INPUT, "n must be a whole number of at least 1"),
    (
        lambda: gp.synthetic_field(10**30),
        gp.InputError,
        "n must be a whole number of at least 1 and at most 10,000,000",
    ),
    (lambda: gp.synthetic_field(9, box=3), INPUT, "box must be (low, high) with low < high, got 3"),
    (
        lambda: gp.synthetic_field(9, theta=[1, 2]),
        gp.InputError,
        "theta must be (l_1, .., l_D, sigma_f, sigma_eps), with",
    ),
    (lambda: gp.synthetic_field(9, inputs="hex"), INPUT, "unknown inputs 'hex': choose one of uniform, grid"),
]
MODEL: list[Bad] = [
    (lambda: fleet(theta=[1, 2]), INPUT, "theta"),
    (lambda: fleet(theta=[1, 1, 1, -1]), INPUT, "theta must be positive and finite, got sigma_eps = -1"),
    (lambda: fleet(normalize="yes"), INPUT, "normalize: expected True or False, got 'yes'"),
    (lambda: fleet(robust=1), INPUT, "robust: expected True or False, got 1"),
    (lambda: fleet(mean="quadratic"), INPUT, "unknown mean 'quadratic': choose one of zero, constant, linear"),
    (lambda: fleet(mean=np.zeros(2)), INPUT, "unknown mean array([0., 0.]): choose one of zero, constant"),
    (lambda: fleet(coordinates="miles"), INPUT, "unknown coordinates 'miles': choose one of as-given, scaled"),
    (lambda: fleet(coordinates="kilometres"), INPUT, 'coordinates="kilometres"'),
    (lambda: fleet(kernel="rbf"), INPUT, "unknown kernel 'rbf': choose one of se, matern12"),
    (lambda: fleet(kernel=7), INPUT, 'expected a kernel, "auto" or a list of kernels, got 7'),
    (lambda: fleet(noise="boats"), INPUT, 'noise: expected None (one for all), "agents" (one per agent), or a'),
    (lambda: fleet(seed=-1), INPUT, "seed must be a whole number of at least 0, got -1"),
    (lambda: fleet(backend="spark"), INPUT, "unknown backend 'spark': choose one of in-process, ray"),
    (lambda: fleet(workers=2), INPUT, 'workers and address belong to backend="ray": give it as well, or leave'),
    (
        lambda: gp.Outputs(SHARDS, targets=["a", "b"], kernel="se", normalize=False),
        gp.InputError,
        "agent 0: expected Y of shape (N, 2), a column for",
    ),
    (
        lambda: gp.Outputs(BOTH, kernel="se", normalize=False),
        gp.InputError,
        "targets: expected the names of the columns of Y, got none: give targets=",
    ),
    (
        lambda: gp.Outputs(BOTH, targets=5, kernel="se", normalize=False),
        INPUT,
        "targets: expected a list of names, got 5",
    ),
    (
        lambda: gp.Outputs(BOTH, targets=["a", "b"], kernel="auto", normalize=False),
        gp.InputError,
        "kernel: expected one for all outputs",
    ),
    (
        lambda: gp.Hyperparameters.from_theta([1.0]),
        gp.InputError,
        "expected theta = (l_1, .., l_D, sigma_f, sigma_eps)",
    ),
    (lambda: gp.Hyperparameters("l", 1.0, 0.1), INPUT, "expected length-scales (l_1, .., l_D), sigma_f and"),
]
GRAPHS: list[Bad] = [
    (lambda: fleet(graph="ring"), INPUT, "unknown graph 'ring': choose one of path, cycle, star, grid"),
    (
        lambda: fleet(graph=7),
        gp.InputError,
        "expected a name, a Graph, a networkx graph, an adjacency matrix or a list",
    ),
    (
        lambda: fleet(graph=gp.Graph.path(3)),
        gp.GraphError,
        "expected a graph of 2 agents, as many as the data have, got 3",
    ),
    (lambda: fleet(graph=np.eye(2)), GRAPH, "have an edge to themselves: remove the self-loops"),
    (lambda: fleet(graph=[[0, 1], [0, 0]]), GRAPH, "expected an undirected graph, got edge (0, 1) without"),
    (lambda: gp.Graph(0, []), GRAPH, "expected a graph of at least one agent, and at most 10,000,000, got 0"),
    (
        lambda: gp.Graph.path(2.5),
        gp.GraphError,
        "expected a graph of at least one agent, and at most 10,000,000, got 2.5",
    ),
    (
        lambda: gp.Graph.grid(-1),
        gp.GraphError,
        "expected a graph of at least one agent, and at most 10,000,000, got -1",
    ),
    (
        lambda: gp.Graph.complete(10**30),
        gp.GraphError,
        "expected a graph of at least one agent, and at most 10,000,000",
    ),
    (lambda: gp.Graph(3, [(0, 1)]), GRAPH, "the graph is not connected: its components are"),
    (lambda: gp.Graph(3, [(0, 3), (1, 2)]), GRAPH, "expected edges between agents 0 .. 2, got [0, 3]"),
    (lambda: gp.Graph(3, [(0, "b")]), GRAPH, "expected edges as pairs of agents' numbers, as [(0, 1), (1, 2)]"),
    (lambda: gp.Graph(3, [(0, 1.5)]), GRAPH, "expected edges as pairs of agents' numbers, as [(0, 1), (1, 2)]"),
    (lambda: gp.Graph.geometric(4, radius=-1.0), INPUT, "radius must be a number above 0, got -1"),
    (
        lambda: gp.GraphSequence([]),
        gp.GraphError,
        "expected at least one graph for a time-varying one, got an empty list",
    ),
    (
        lambda: gp.GraphSequence(["path"]),
        gp.GraphError,
        "expected a list of graphs for a time-varying one, got ['path']",
    ),
    (lambda: gp.InProcess("path"), GRAPH, "expected a Graph or a GraphSequence, got 'path'"),
    (lambda: gp.Loopback(gp.Graph.path(3), [[0]]), INPUT, "expected each of the agents 0 .. 2 once in hosting"),
    (lambda: gp.Loopback(gp.Graph.path(3), 3), INPUT, "expected each of the agents 0 .. 2 once in hosting"),
]
TRAINING: list[Bad] = [
    (
        lambda: train(method="sgd"),
        gp.InputError,
        "unknown training method 'sgd': choose one of dec-full-gp, dec-fact-gp",
    ),
    (lambda: train(method=["dec-fact-gp"]), INPUT, "unknown training method ['dec-fact-gp']: choose one of"),
    (lambda: train(theta0=[1, 2]), INPUT, "theta0"),
    (lambda: train(rounds=0), INPUT, "rounds must be a whole number of at least 1, got 0"),
    (lambda: train(tol=-1), INPUT, "tol must be a number of at least 0, got -1"),
    (lambda: train(seconds=0), INPUT, "seconds must be a number above 0, got 0"),
    (lambda: train(rho=5.0), INPUT, "rho"),
    (lambda: train(noise_floor=2), INPUT, "noise_floor: expected a number of at least 0 and below 1, got 2"),
    (lambda: train(engine="gpu"), INPUT, "unknown engine 'gpu': choose one of auto, dense, moments, vecchia"),
    (lambda: train(n_neighbours=0), INPUT, "n_neighbours must be a whole number of at least 1, got 0"),
    (
        lambda: train(bounds=[1, 2]),
        INPUT,
        "bounds: expected a dictionary with the names of hyperparameters, got [1, 2]",
    ),
    (lambda: train(bounds={"l_x": (1, 2)}), INPUT, "unknown hyperparameter in bounds 'l_x': choose one of l_1"),
    (lambda: train(bounds={"noise": (2, 1)}), INPUT, "bounds"),
    (lambda: train(priors={"noise": 1}), INPUT, "priors"),
    (lambda: train(fixed={"noise": -1}), INPUT, "fixed"),
    (lambda: train(progress="yes"), INPUT, "progress: expected True, False or a function of a Progress, got"),
    (lambda: gp.Fleet(SHARDS, kernel="se", normalize=False).trainer("full-gp"), INPUT, "full-gp"),
    (
        lambda: gp.Fleet(SHARDS, kernel="se", normalize=False).trainer("dec-apx-gp", speed=2),
        INPUT,
        "trainer has no option 'speed': expected one of",
    ),
    (lambda: gp.TrainingOptions(rounds=1.5), INPUT, "rounds must be a whole number of at least 1, got 1.5"),
    (lambda: gp.TrainingOptions(normalize=None), INPUT, "normalize: expected True or False, got None"),
]
PREDICTION: list[Bad] = [
    (
        lambda: gp.Fleet(SHARDS, kernel="se", normalize=False).predict(POINTS),
        INPUT,
        "the fleet has no hyperparameters yet: call train first",
    ),
    (lambda: fleet().predict(POINTS, "kriging"), INPUT, "unknown prediction method 'kriging': choose one of"),
    (lambda: fleet().predict([[1e308, 0.0]]), INPUT, "the array of queries has values beyond 1e100 in 1 of 1"),
    (lambda: fleet().predict([0.5, 0.5]), INPUT, "queries: expected shape (T, 2), got (2,)"),
    (
        lambda: fleet().predict([[0.5, np.nan]]),
        gp.InputError,
        "the array of queries has NaN or infinite values in 1 of",
    ),
    (lambda: fleet().predict([[1j, 0.5]]), INPUT, "queries: expected a numeric array, got complex numbers"),
    (
        lambda: fleet(inputs=["a", "c"]).predict(MISSING),
        gp.InputError,
        "queries: expected the columns a, c, got a, b: add",
    ),
    (lambda: fleet().predict(POINTS, agent=2), INPUT, "agent must lie between 0 and 1, got 2"),
    (lambda: fleet().predict(POINTS, agent="b"), INPUT, "agent must lie between 0 and 1, got 'b'"),
    (
        lambda: fleet().predict(POINTS, "dec-nn-rbcm", eta=2),
        INPUT,
        "eta must be a number of at least 0 and at most 1, got 2",
    ),
    (
        lambda: fleet().predict(POINTS, "dec-rbcm", eta=0.1),
        gp.InputError,
        "dec-rbcm has no option eta: expected one of",
    ),
    (
        lambda: fleet().predict(POINTS, "dec-rbcm", rounds=5),
        gp.InputError,
        "rounds is of the paper's recursions, and sums along the",
    ),
    (
        lambda: fleet().predict(POINTS, "dec-rbcm", consensus="vote"),
        INPUT,
        "unknown consensus 'vote': choose one of tree",
    ),
    (lambda: fleet().predict(POINTS, eta=0.1), INPUT, "dec-summary has no option eta: expected one of engine"),
    (lambda: fleet().predict(POINTS, min_rows=0), INPUT, "min_rows must be a whole number of at least 1, got 0"),
    (lambda: fleet().predict(POINTS, budget=0.0), INPUT, "budget must be a number above 0, got 0"),
    (lambda: fleet().predict(POINTS, local="yes"), INPUT, "local: expected True or False, got 'yes'"),
    (lambda: fleet().predict(POINTS, "dec-rbcm", local=True), INPUT, "dec-rbcm has no option local: expected one of"),
    (lambda: fleet().predict(POINTS, observed="no"), INPUT, "observed: expected True or False, got 'no'"),
    (lambda: fleet().predict(POINTS, engine="gpu"), INPUT, "unknown engine 'gpu': choose one of auto, dense"),
    (lambda: fleet(kernel="matern32").predict(POINTS, "dec-full-gp"), INPUT, "dec-full-gp needs the squared"),
    (lambda: fleet().condition(engine="x"), INPUT, "unknown engine 'x': choose one of auto, dense, moments"),
    (
        lambda: fleet().condition().predict(POINTS, n_neighbours=9),
        INPUT,
        "predict has no option 'n_neighbours': expected one of eta",
    ),
    (lambda: fleet().calibrate(holdout="all"), INPUT, "unknown holdout 'all': choose one of rows, blocks, both"),
    (lambda: fleet().calibrate(level=1.5), INPUT, "level must lie between 0 and 1, got 1.5"),
    (lambda: fleet().calibrate(max_rows=0), INPUT, "max_rows must be a whole number of at least"),
    (lambda: fleet().observe(5, POINTS, [1.0]), INPUT, "agent must lie between 0 and 1, got 5"),
    (lambda: fleet().observe(0, [[1.0]], [1.0]), INPUT, "agent 0: expected X with 2 columns, got 1"),
    (
        lambda: fleet().observe(0, POINTS, [1.0], [0.1]),
        gp.InputError,
        "agent 0: expected no known deviations s, got some",
    ),
]
FILES: list[Bad] = [
    (lambda: gp.load_model("nowhere"), INPUT, "nowhere: there is no model.json: expected a folder written by"),
    (lambda: gp.load_model(None), INPUT, "folder: expected a path, got None"),
    (
        lambda: gp.save_model("model", "m"),
        gp.InputError,
        "model: expected a Model, got 'model': fg.Model(fleet, agents",
    ),
    (lambda: gp.save_model(model(), 7), INPUT, "folder: expected a path, got 7"),
    (lambda: gp.save_model(model(), "/proc/x"), INPUT, "/proc/x: it cannot be written: No such file"),
    (lambda: gp.save_model(model(), "m", overwrite="no"), INPUT, "overwrite: expected True or False, got 'no'"),
    (lambda: model(agents=["a"]), INPUT, "agents: expected 2 names, as many as the fleet has, got 1"),
    (lambda: model(inputs=["a", 2]), INPUT, "inputs: expected a list of names, got ['a', 2]"),
    (lambda: model(target=None), INPUT, "target: expected a name, got None"),
    (lambda: model(fleet=SHARDS), INPUT, "fleet: expected a Fleet, got"),
    (lambda: read("nofile.csv"), INPUT, "nofile.csv: there is no such file"),
    (lambda: read("t.xls"), INPUT, "t.xls: expected a file that ends in"),
    (lambda: read(None), INPUT, "path: expected a path, got None"),
    (lambda: read("t.csv", inputs=[]), INPUT, "inputs: expected the names of one column or more, got none"),
    (lambda: read("t.csv", target="sal"), INPUT, "t.csv: there is no column 'sal'; it has lon, lat, sst, boat"),
    (lambda: read("t.csv", target="boat"), INPUT, "t.csv: column 'boat' must hold numbers: expected a number"),
    (lambda: read("t.csv", agent=""), INPUT, "agent: expected the name of a column, got ''"),
    (lambda: read("t.csv", missing="skip"), INPUT, "unknown missing 'skip': choose one of refuse, drop"),
    (lambda: read("t.csv", fill=-9999), INPUT, "fill: expected a list of values that stand for nothing, as"),
    (lambda: read("t.csv", reading=";"), INPUT, "reading: expected a Reading, as fg.io.Reading(sep="),
    (lambda: read("t.csv", reading=gp.io.Reading(sep="ab")), INPUT, "sep (--sep) must be one character, or tab, got"),
    (lambda: gp.io.Reading(encoding=8), INPUT, "encoding: expected a text, got 8"),
    (lambda: read("tabs.csv"), INPUT, "tabs.csv: there is no column 'lon'; it has lon"),
    (lambda: read("latin.csv"), INPUT, "latin.csv: it is not written in utf-8: save it as UTF-8, or give its encoding"),
    (lambda: load_sst("none.nc"), INPUT, "none.nc: there is no such file"),
    (lambda: read_edges("edges.txt", ["a", "b"]), INPUT, "edges.txt, line 2: agent 'c' is not in the data"),
    (
        lambda: gp.Fleet.from_files("*.nothing", inputs=["lon"], target="sst", kernel="se", normalize=False),
        gp.InputError,
        "*.nothing: there is no such",
    ),
    (
        lambda: gp.Fleet.from_files(5, inputs=["lon"], target="sst", kernel="se", normalize=False),
        gp.InputError,
        "files: expected a pattern, or a list",
    ),
    (
        lambda: gp.Fleet.from_files("t.csv", inputs=["lon"], target="lon", kernel="se", normalize=False),
        gp.InputError,
        "expected different columns as",
    ),
]
FRAMES: list[Bad] = [
    (lambda: frame(X), INPUT, "expected a data frame whose columns have names, got ndarray"),
    (lambda: frame(target=["sst"]), INPUT, "target: expected the name of one column, got ['sst']: for several see"),
    (lambda: frame(target="salt"), INPUT, "the data frame: there is no column 'salt'; it has lon, lat, sst, boat"),
    (lambda: frame(agent="boat", agents=2), INPUT, "agents, by and axis split rows that have no agent: leave them"),
    (lambda: frame(agents=2, axis="depth"), INPUT, "unknown axis 'depth': choose one of lon, lat"),
    (lambda: frame(agents=2, by=np.zeros(2)), INPUT, "unknown partition array([0., 0.]): choose one of stripes"),
    (lambda: frame(time_unit="weeks"), INPUT, "unknown time_unit 'weeks': choose one of days, hours, seconds"),
    (
        lambda: gp.Fleet.from_dataset(TABLE_OF_BOATS, kernel="se", normalize=False),
        INPUT,
        "expected an xarray DataArray or Dataset, got DataFrame",
    ),
    (
        lambda: gp.Fleet.from_dataset(SEA, target=5, kernel="se", normalize=False),
        INPUT,
        "target: expected the name of a variable, got 5",
    ),
    (
        lambda: gp.Fleet.from_dataset(SEA, at="depth", kernel="se", normalize=False),
        INPUT,
        "at: expected values by the names of axes, {",
    ),
    (
        lambda: gp.Fleet.from_dataset(SEA, box=3, kernel="se", normalize=False),
        INPUT,
        "box must be four numbers: west, south, east, north, got 3",
    ),
    (lambda: gp.data.partition_by_label(X, Y, None), INPUT, "labels: expected one per row, got None: name the column"),
    (lambda: fleet().set_metadata(["a"], "t", {}), INPUT, "labels: expected a name for each of the 2 agents, got 1"),
    (lambda: model(note=3), INPUT, "note: expected a text, got 3"),
    (lambda: fleet().map(5), INPUT, "grid: expected two numbers of points, (200, 100), got 5"),
    (lambda: fleet().map((3, 3), at=5), INPUT, "at: expected the values of other inputs by name, {"),
    (lambda: fleet().map((3, 3), box=5), INPUT, "box: expected four numbers, the lowest two and the highest two, got"),
    (lambda: fleet().map((3, 3), within=1j), INPUT, "within must be a number of length-scales above 0, or inf, got 1j"),
    (lambda: fleet().map((3, 3), mask=[[1], [1, 2]]), INPUT, "mask: expected an array, or a function of points, got"),
    (lambda: answer().to_frame(len), INPUT, "queries: expected a numeric array, got builtin_function_or_method"),
    (lambda: answer().to_frame(X), INPUT, "queries: expected those of the answer, 1 rows, got the shape (30, 2)"),
    (lambda: fleet().predict(X[:3], "poe").to_dataset(), INPUT, "to_dataset"),
]
ANSWERS: list[Bad] = [
    (lambda: answer().interval(95), INPUT, "level must lie between 0 and 1, got 95"),
    (lambda: answer().interval(observed="no"), INPUT, "observed: expected True or False, got 'no'"),
    (lambda: fleet().joint(POINTS, engine=Y), INPUT, "unknown engine array("),
    (lambda: fleet().joint(POINTS, "dec-npae"), INPUT, "dec-npae has no joint covariance"),
    (lambda: fleet().sample(POINTS, n=0), INPUT, "n must be a whole number of at least 1, got 0"),
    (lambda: fleet().sample(POINTS, n=10**12), INPUT, "n: expected at most 100,000,000 draws of 1 points, got 1,000"),
    (lambda: fleet().gradient([[0.5]]), INPUT, "queries: expected shape (T, 2), got (1, 1)"),
    (lambda: fleet().gradient(POINTS, "dec-npae"), INPUT, "dec-npae has no gradients"),
    (lambda: fleet().suggest(2, POINTS), INPUT, "agent must lie between 0 and 1, got 2"),
    (lambda: fleet().suggest(0, POINTS, criterion=Y), INPUT, "unknown criterion array("),
    (lambda: fleet().suggest(0, POINTS, n=10**30), INPUT, "different candidates for each agent, so that no two share"),
    (lambda: fleet().suggest(0, POINTS, method="poe").of(1), INPUT, "agent: expected one that has places, 0, got 1"),
    (lambda: fleet().condition().predict_in_blocks(POINTS, done=1), INPUT, "done: expected the numbers of blocks"),
]
JUDGING: list[Bad] = [
    (lambda: fleet().score(X), INPUT, "score: expected X and y, or a list with (X_i, y_i) for each of 2 agents"),
    (lambda: fleet().score(X, Y, observed=True), INPUT, "score has no option 'observed': expected one of"),
    (lambda: gp.score(3, Y), INPUT, "expected a Prediction or a pair (mean, variance), got int"),
    (lambda: gp.score((Y, Y), Y, observed=None), INPUT, "observed: expected True or False, got None"),
    (lambda: gp.score((Y, -np.ones(30)), Y), INPUT, "variance: expected positive numbers, got -1 (first: row 0)"),
    (lambda: gp.Scores.pooled([]), INPUT, "parts: expected a list of Scores, at least one, got []"),
    (lambda: gp.metrics.rmse(Y, Y[:3]), INPUT, "expected a truth for each of 30 predictions, got 3"),
    (lambda: gp.metrics.crps(Y, Y**2, len), INPUT, "truth: expected a numeric array, got builtin_function_or_method"),
    (lambda: gp.metrics.mae([], []), INPUT, "mean: expected an array (N,) with at least one number, got the shape"),
    (lambda: gp.metrics.msll(Y, Y**2, Y, 3 * [1.0]), INPUT, "MSLL: expected training observations that differ"),
    (lambda: gp.metrics.coverage(Y, Y**2, Y, 95), INPUT, "level must lie between 0 and 1, got 95"),
    (lambda: gp.metrics.framed([1]), INPUT, "parts: expected Scores by name, {"),
    (lambda: fleet().cross_validate(61), INPUT, "folds: expected at most 60, one for each row, got 61"),
    (lambda: fleet().cross_validate(split="rows"), INPUT, "unknown split 'rows': choose one of random, agent, block"),
    (lambda: fleet().cross_validate(train={"speed": 1}), INPUT, "unknown option of train 'speed': choose one of"),
    (lambda: fleet().cross_validate(kept="folder"), INPUT, "kept: expected a ResumableCache, as"),
    (lambda: gp.verify(model()), INPUT, "verify: expected a Fleet, got Model: of a Model give model.fleet"),
    (lambda: gp.verify(fleet(), methods=Y), INPUT, "methods: expected a list of prediction methods, got array("),
    (lambda: gp.recommend(b"xy"), INPUT, "expected a Fleet, a list of (X_i, y_i), or of each agent's number of rows"),
    (lambda: gp.recommend([5, 5]), INPUT, "dimension, which is needed where only numbers of rows are given, must be"),
    (lambda: advice(queries=10**12), INPUT, "queries must be a whole number of at least 1 and at most 10,000,000"),
    (lambda: advice(private="all"), INPUT, "unknown private 'all': choose one of rows, sums, likelihoods"),
    (lambda: advice(accuracy=Y), INPUT, "unknown accuracy array("),
    (lambda: advice().candidate("best"), INPUT, "unknown candidate 'best': choose one of"),
    (lambda: advice().table("both"), INPUT, "unknown task 'both': choose one of training, prediction"),
    (lambda: gp.Link("fast"), INPUT, 'link: expected a rate, and if you like a latency, a loss and "half duplex"'),
    (lambda: gp.Link("9600 bit/s, 100 %"), INPUT, "link: expected a loss below 100 %, got 100 %"),
    (lambda: gp.Link("9600 bit/s").tries(np.nan), INPUT, "messages must be a whole number of at least 0, got nan"),
]
FIGURES: list[Bad] = [
    (lambda: gp.plot.field([(X, Y)]), INPUT, "field: expected a Fleet, got list: of a Model give model.fleet"),
    (
        lambda: gp.plot.field(fleet(), along=(0, 2)),
        INPUT,
        "along: expected the numbers of two inputs, from 0 to 1",
    ),
    (lambda: gp.plot.field(fleet(), graph="yes"), INPUT, "graph: expected True or False, got 'yes'"),
    (lambda: gp.plot.field(fleet(), ax=MISSING), INPUT, "ax: expected the axes of a matplotlib figure, got DataFrame"),
    (lambda: gp.plot.map(X), INPUT, "expected a fleet, a prediction on a grid, or a map as Fleet.map makes it"),
    (lambda: gp.plot.map(X, std="var"), INPUT, "unknown std 'var': choose one of std, std_observed"),
    (lambda: gp.plot.map(X, grid=(3, 3)), INPUT, "grid: expected options of a map where a fleet is asked, got array("),
    (lambda: gp.plot.reliability(answer()), INPUT, "reliability: expected the truth beside a prediction, got none"),
    (lambda: gp.plot.reliability((Y, Y**2), len), INPUT, "truth: expected a numeric array, got builtin_function_or_"),
    (lambda: gp.plot.traffic(Y, fleet()), INPUT, "ledger: expected that of a fit or a prediction, fit.ledger, got"),
    (lambda: gp.plot.traffic(answer().ledger, Y), INPUT, "where: expected a fleet, a graph or places (M, 2), got the"),
    (lambda: gp.plot.convergence(fleet()), INPUT, "expected a trained fleet, got one that was not trained: call"),
    (lambda: gp.plot.kernels(7), INPUT, "expected a training (Fit) or a trained fleet, got int"),
]
TABLE = [*DATA, *MODEL, *GRAPHS, *TRAINING, *PREDICTION, *FILES, *FRAMES, *ANSWERS, *JUDGING, *FIGURES]


def read(path: Any, **options: Any) -> object:
    return read_observations(path, **{"inputs": ["lon", "lat"], "target": "sst", **options})


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"lon": X[:, 0], "lat": X[:, 1], "sst": Y, "boat": "Böe"})
    table.to_csv("t.csv", index=False)
    table.to_csv("tabs.csv", index=False, sep="\t")
    table.to_csv("latin.csv", index=False, encoding="latin-1")
    Path("t.xls").touch()
    Path("edges.txt").write_text("a b\na c\n", encoding="utf-8")


def test_the_table_is_long() -> None:
    assert len(TABLE) > 200


@pytest.mark.parametrize("row", range(len(TABLE)))
def test_a_bad_call_has_one_clear_error(row: int, files: None) -> None:
    call, kind, said = TABLE[row]
    before = sorted(Path().iterdir())
    with pytest.raises(fg.FleetGPError) as error:
        call()
    assert isinstance(error.value, kind)
    told = str(error.value)
    assert said in told
    assert len(told.splitlines()) == 1 or hasattr(error.value, "shown"), "one line, or a place in a text"
    assert sorted(Path().iterdir()) == before, "nothing is half-written"


#: Wrong for most arguments; where one of them is right, the call works.
THINGS: list[Any] = [
    None, "", "abc", b"x", True, 0, -1, 2.5, 1j, np.nan, np.inf, 10**30, [], {}, {1, 2}, len, object(), X, Y, MASKED,
    MISSING, [[1, 2], [3]], np.zeros((2, 2, 2)), np.array([[1j, 2]]), np.array([[None, "a"]], dtype=object),
    np.array([[1e308, 0.0]]),
    np.array([["2020-01-01", "2021-01-01"]], dtype="datetime64[D]"),
]  # fmt: skip
#: A call by keywords, and right arguments. What may rightly take long, or listens, is left out.
CALLS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "Fleet": (
        fg.Fleet,
        {"shards": SHARDS, "graph": "path", "theta": THETA, "normalize": False, "mean": "zero", "kernel": "se"}
        | {
            "coordinates": "as-given",
            "noise": None,
            "robust": False,
            "seed": 0,
            "inputs": ["a", "b"],
            "backend": "in-process",
        },
    ),
    "Outputs": (fg.Outputs, {"shards": BOTH, "graph": "path", "targets": ["a", "b"], "kernel": "se", "inputs": None}),
    "partition": (fg.partition, {"X": X, "y": Y, "s": None, "agents": 2, "by": "stripes", "axis": 0, "seed": 0}),
    "labels": (fg.data.partition_by_label, {"X": X, "y": Y, "labels": ["a", "b"] * 15, "s": None}),
    "field": (fg.synthetic_field, {"n": 9, "theta": THETA, "seed": 0, "box": (0, 2), "inputs": "uniform"}),
    "Graph": (fg.Graph, {"agents": 3, "edges": [(0, 1), (1, 2)], "connected": True}),
    "geometric": (fg.Graph.geometric, {"agents": 4, "radius": 2.0, "seed": 0, "places": None}),
    "predict": (
        fleet().predict,
        {"queries": POINTS, "method": "dec-rbcm", "theta": THETA, "engine": "auto", "n_neighbours": None, "eta": None}
        | {"consensus": None, "seed": None, "observed": False, "agent": None},
    ),
    "observe": (lambda **given: fleet().observe(**given), {"agent": 0, "X": POINTS, "y": [1.0], "s": None}),
    "calibrate": (
        fleet().calibrate,
        {"method": "poe", "holdout": "rows", "level": 0.9, "cells": 10, "max_rows": 5, "seed": 1},
    ),
    "train": (
        train,
        {"method": "dec-fact-gp", "theta0": THETA, "tol": 1.0, "noise_floor": 0.1, "bounds": None, "priors": None}
        | {"fixed": None, "seed": 1, "engine": "auto", "n_neighbours": 5, "rho": None, "nested": None},
    ),
    "Model": (model, {"fleet": fleet(), "agents": ("a", "b"), "inputs": ("u", "v"), "target": "t"}),
    "theta": (fg.Hyperparameters.from_theta, {"theta": THETA}),
    "load": (fg.load_model, {"folder": "nowhere"}),
    "frame": (
        fg.Fleet.from_frame,
        {"frame": TABLE_OF_BOATS, "inputs": ["lon", "lat"], "target": "sst", "agents": 2, "by": "stripes"}
        | {"axis": "lon", "missing": "drop", "fill": None, "time_unit": "days", "theta": THETA},
    ),
    "dataset": (
        fg.Fleet.from_dataset,
        {"data": SEA, "inputs": None, "target": None, "box": None, "stride": None, "at": None, "date": None},
    ),
    "map": (fleet().map, {"grid": (3, 3), "box": None, "at": None, "within": 1.0, "mask": None, "method": "poe"}),
    "joint": (fleet().joint, {"queries": POINTS, "method": "poe", "observed": False, "agent": 0, "engine": "auto"}),
    "sample": (fleet().sample, {"queries": POINTS, "n": 2, "method": "poe", "seed": 0}),
    "gradient": (fleet().gradient, {"queries": POINTS, "method": "poe", "agent": 0, "engine": "auto", "eta": None}),
    "suggest": (fleet().suggest, {"agent": 0, "candidates": POINTS, "n": 1, "criterion": "variance", "method": "poe"}),
    "scores": (fleet().score, {"X": X, "y": Y, "s": None, "method": "poe", "agent": None, "level": 0.9}),
    "score": (fg.score, {"prediction": (Y, Y**2), "truth": Y, "trained": Y, "observed": True, "level": 0.9}),
    "recommend": (
        fg.recommend,
        {"data": [9, 9], "graph": "path", "link": None, "private": None, "kernel": "se", "accuracy": "best"}
        | {"queries": 9, "agent": None, "dimension": 2},
    ),
    "Link": (fg.Link, {"text": "9600 bit/s"}),
}


@settings(max_examples=300)
@given(st.data())
def test_whatever_is_given_there_is_an_answer_or_one_error_in_one_line(data: Any) -> None:
    call, right = CALLS[data.draw(st.sampled_from(sorted(CALLS)))]
    name = data.draw(st.sampled_from(sorted(right)))
    thing = THINGS[data.draw(st.integers(0, len(THINGS) - 1))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call(**{**right, name: thing})
        except fg.FleetGPError as error:
            lines, pointed = len(str(error).splitlines()), hasattr(error, "shown")
        else:
            return
    assert lines == 1 or pointed
