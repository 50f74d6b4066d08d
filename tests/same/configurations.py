"""The configurations: what each of them asks of FleetGP. Their data are in `data`, their calls in `calls`.

Those that start processes or a cluster take seconds, and are at the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import numpy as np

from tests.same import calls, commands, data
from tests.same.calls import PREDICTORS, TRAINERS, Record
from tests.same.data import QUERIES, START, THETA

#: By name. Each gets an empty folder.
CONFIGURATIONS: dict[str, Callable[[Path], Record]] = {}


def run(name: str) -> Record:
    """One configuration's record, with the kinds of warnings that were given."""
    with TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        record = CONFIGURATIONS[name](Path(folder))
    return {**record, "warnings": calls.warning_names(heard)}


def configuration(function: Callable[[Path], Record]) -> Callable[[Path], Record]:
    """Take a function in under its name."""
    CONFIGURATIONS[function.__name__.replace("_", " ")] = function
    return function


def add(name: str, function: Callable[..., Record], *given: Any, **options: Any) -> None:
    """Take in what a function gives with these arguments, which needs no folder."""
    assert name not in CONFIGURATIONS, name
    CONFIGURATIONS[name] = lambda _: function(*given, **options)


# ---- trainers ----------------------------------------------------------------------------------------------------

PATH: list[tuple[int, int]] = [(0, 1), (1, 2), (2, 3), (3, 4)]
#: Rounds without a verdict: the same number on every processor.
FIXED_ROUNDS: dict[str, dict[str, Any]] = {
    "c-gp": {"rounds": 6, "tol": 0.0},
    "apx-gp": {"rounds": 20, "tol": 0.0},
    "gapx-gp": {"rounds": 20, "tol": 0.0},
    "dec-c-gp": {"rounds": 6, "tol": 0.0},
    "dec-apx-gp": {"rounds": 20, "tol": 0.0},
    "dec-gapx-gp": {"rounds": 20, "tol": 0.0},
}


def trained(shards: list[Any], method: str, how: dict[str, Any], predictor: str = "dec-rbcm", **model: Any) -> Record:
    """A training, and a prediction with its theta."""
    there = calls.fleet(shards, **model)
    fit = calls.train(there, method, **how)
    return {"fit": fit, "answer": calls.predict(there, QUERIES, predictor)}


for method in TRAINERS:
    how: dict[str, Any] = {"theta0": START, **FIXED_ROUNDS.get(method, {})}
    if method in ("dec-full-gp", "full-gp"):
        how["engine"] = "auto"
    add(f"trainer {method}", trained, data.field(), method, how)
for method in ("dec-fact-gp", "dec-g-fact-gp", "fact-gp", "full-gp", "dec-apx-gp", "apx-gp"):
    model: dict[str, Any] = {"kernel": "matern32", "normalize": True, "graph": "cycle"}
    how = {"tol": 1e-3, "rounds": 400}
    add(f"trainer {method} from three starts", trained, data.field(), method, how, **model)

_SEVERAL = [START, [0.5, 1.5, 2.0, 0.1]]
_KNOWN: dict[str, Any] = {
    "bounds": {"l_1": (0.2, 0.8), "noise": (None, 1.0)},
    "priors": {"noise": (0.1, 2.0)},
    "fixed": {"signal": 1.1},
}
for name, method, changes in (
    ("the penalties of the paper", "dec-apx-gp", {"rho": 500.0, "kappa": 5000.0, "rounds": 20, "tol": 0.0}),
    ("a stiffness", "apx-gp", {"rho": 500.0, "lipschitz": 5000.0, "rounds": 20, "tol": 0.0}),
    (
        "gradient descent",
        "c-gp",
        {"rho": 500.0, "nested": "gradient-descent", "step": 1e-5, "nested_iterations": 10, "rounds": 8, "tol": 0.0},
    ),
    (
        "gradient descent",
        "dec-c-gp",
        {"rho": 500.0, "nested": "gradient-descent", "step": 1e-5, "nested_iterations": 10, "rounds": 8, "tol": 0.0},
    ),
    ("bounds, priors and a fixed value", "dec-fact-gp", _KNOWN),
    ("bounds, priors and a fixed value", "dec-apx-gp", {**_KNOWN, "rounds": 20, "tol": 0.0}),
    ("bounds, priors and a fixed value", "fact-gp", _KNOWN),
    ("bounds, priors and a fixed value", "dec-full-gp", {**_KNOWN, "engine": "auto"}),
    ("several starts", "dec-fact-gp", {"theta0": _SEVERAL}),
    ("several starts", "dec-apx-gp", {"theta0": _SEVERAL, "tol": 1e-3, "rounds": 300}),
    ("a round limit", "dec-fact-gp", {"rounds": 2}),
    ("a time limit that is far", "dec-fact-gp", {"seconds": 1e6}),
    ("a time limit that is far", "dec-apx-gp", {"seconds": 1e6, "rounds": 20}),
    ("another seed", "dec-g-fact-gp", {"seed": 5}),
    ("no noise floor", "dec-fact-gp", {"noise_floor": 0.0}),
    ("a tolerance", "dec-apx-gp", {"tol": 1e-4}),
):
    how = {"theta0": START, **changes}
    add(f"{method} with {name}", trained, data.field(), method, how)

add("trainer without noise in the data", trained, data.field(60, 3, noise=0.0), "dec-fact-gp", {"theta0": START})


def stepwise(method: str, count: int) -> Record:
    return {"steps": calls.steps(calls.fleet(data.field()), method, count, theta0=START)}


for method in ("dec-fact-gp", "dec-apx-gp", "gapx-gp"):
    add(f"steps of {method}", stepwise, method, 5)

# ---- graphs ------------------------------------------------------------------------------------------------------

GRAPHS: dict[str, Any] = {
    "a path": "path",
    "a star": "star",
    "a cycle": "cycle",
    "a complete graph": "complete",
    "a geometric graph": "geometric",
    "the graph of places": "places",
    "a graph of edges": calls.graph(6, [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3)]),
    "a matrix": np.eye(6, k=1) + np.eye(6, k=-1) + np.eye(6, k=4) + np.eye(6, k=-4),
    "a grid": "grid",
    "a graph that varies": calls.changing_graph(6, [[(0, 1), (2, 3), (4, 5)], [(1, 2), (3, 4)], []]),
}


def on_graph(graph: Any) -> Record:
    """What depends on the graph: rounds over edges, sums along the tree, averages, and a flood."""
    there = calls.fleet(data.field(90, 6), graph=graph, normalize=True)
    record = {
        "edges": calls.train(there, "dec-apx-gp", theta0=START, rounds=12, tol=0.0),
        "tree": calls.train(there, "dec-fact-gp", theta0=START, rounds=4, tol=0.0),
    }
    for method in ("dec-nn-grbcm", "dec-nearest"):
        record[method] = calls.predict(there, QUERIES, method)
    record["asked"] = calls.predict(there, QUERIES, "dec-nn-rbcm", agent=4)
    record["average"] = calls.predict(there, QUERIES, "dec-rbcm", consensus="average", rounds=60, tol=1e-4)
    return record


for name, graph in GRAPHS.items():
    add(f"on {name}", on_graph, graph)

# ---- predictors --------------------------------------------------------------------------------------------------


def answers(method: str, **changes: Any) -> Record:
    """An answer to all, the same once more, and one to an agent that asks about observations."""
    there = calls.fleet(data.uneven(), graph="cycle", theta=THETA, kernel="se")
    return {
        "first": calls.predict(there, QUERIES, method, **changes),
        "again": calls.predict(there, QUERIES[:3], method, **changes),
        "asked": calls.predict(there, QUERIES, method, noisy=True, agent=2, **changes),
    }


_AVERAGED = [name for name in PREDICTORS if name.startswith("dec-") and name not in ("dec-full-gp", "dec-nearest")]
for method in PREDICTORS:
    add(f"predictor {method}", answers, method)
for method in _AVERAGED:
    add(f"predictor {method} by averages", answers, method, consensus="average", rounds=300, tol=1e-3)
for name, method, changes in (
    ("eta", "dec-nn-poe", {"eta": 0.2}),
    ("eta", "dec-nn-grbcm", {"eta": "auto"}),
    ("eta", "dec-nn-rbcm", {"eta": "auto"}),
    ("eta", "dec-nn-npae", {"eta": "auto"}),
    ("the weights of the paper", "grbcm", {"beta": "paper"}),
    ("the weights of the paper", "dec-nn-grbcm", {"beta": "paper"}),
    ("another seed", "dec-grbcm", {"seed": 3}),
    ("seven neighbours", "dec-nearest", {"neighbours": 7}),
    ("another theta", "dec-rbcm", {"theta": [0.5, 0.5, 1.0, 0.1]}),
    ("vectors", "dec-npae", {"engine": "auto"}),
    ("vectors", "npae", {"engine": "moments"}),
):
    add(f"predictor {method} with {name}", answers, method, **changes)


@configuration
def a_conditioned_fleet(folder: Path) -> Record:
    """Query after query by several methods, which share posteriors."""
    there = calls.condition(calls.fleet(data.uneven(), theta=THETA, kernel="matern52"))
    return {
        method: calls.predict_conditioned(there, QUERIES, method)
        for method in ("dec-poe", "dec-nn-grbcm", "dec-npae", "grbcm", "dec-nn-npae", "dec-rbcm")
    }


@configuration
def one_agent_alone(folder: Path) -> Record:
    """Every method is then the posterior of its data."""
    there = calls.fleet(data.field(40, 1), normalize=True, kernel="matern52")
    record: Record = {"fit": calls.train(there, "dec-fact-gp", theta0=START)}
    for method in ("dec-nn-grbcm", "dec-rbcm", "dec-npae", "dec-nearest"):
        record[method] = calls.predict(there, QUERIES, method)
    return {**record, "joint": calls.joint(there, QUERIES, "dec-rbcm"), "slope": calls.gradient(there, QUERIES, "poe")}


# ---- all that can be asked ---------------------------------------------------------------------------------------

_EXACT = ("full-gp", "dec-full-gp", "dec-nearest")
_COMMITTEES = ("poe", "dec-gpoe", "dec-bcm", "rbcm", "dec-nn-rbcm", "dec-grbcm", "dec-nn-grbcm")
CANDIDATES = np.stack(np.meshgrid(np.linspace(0.05, 1.95, 5), np.linspace(0.1, 1.9, 4)), -1).reshape(-1, 2)


def together(method: str, kernel: str) -> Record:
    """Joint posteriors, draws, gradients and places to measure at."""
    there = calls.fleet(data.uneven(), graph="cycle", theta=THETA, kernel=kernel, normalize=True)
    return {
        "joint": calls.joint(there, QUERIES, method),
        "asked": calls.joint(there, QUERIES[:4], method, noisy=True, agent=3),
        "sample": calls.sample(there, QUERIES[:4], 3, method, seed=11),
        "gradient": calls.gradient(there, QUERIES, method),
        "suggestion": calls.suggest(there, 1, CANDIDATES, 3, "mutual-information", method),
        "suggestions": calls.suggest(there, None, CANDIDATES, 2, "variance", method),
    }


for method in (*_EXACT, *_COMMITTEES):
    add(f"together by {method}", together, method, "se")
for method in ("full-gp", "dec-nearest", "dec-nn-grbcm"):
    add(f"together by {method} with matern12", together, method, "matern12")


@configuration
def places_of_agents_own(folder: Path) -> Record:
    """Candidates of each agent, some of them twice, after a calibration."""
    there = calls.fleet(data.field(120, 3), theta=THETA, kernel="matern32")
    calibration = calls.calibrate(there, "dec-rbcm", hold="rows", most=20)
    own = [CANDIDATES[:8], np.concatenate([CANDIDATES[5:14], CANDIDATES[5:7]]), CANDIDATES[10:]]
    return {
        "calibration": calibration,
        "suggestions": calls.suggest(there, None, own, 2, "mutual-information", "dec-rbcm"),
        "joint": calls.joint(there, QUERIES, "dec-rbcm"),
    }


def calibrated(method: str, hold: str, **changes: Any) -> Record:
    there = calls.fleet(data.field(160, 4), normalize=True, kernel="matern32", theta=THETA)
    record = {"calibration": calls.calibrate(there, method, hold=hold, most=40, **changes)}
    record["answer"] = calls.predict(there, QUERIES, method)
    return {**record, "score": calls.score(there, *data.rows_of(30, seed=9), method)}


for method, hold in (("dec-rbcm", "both"), ("dec-nn-grbcm", "rows"), ("dec-nearest", "blocks"), ("gpoe", "both")):
    add(f"calibration of {method} by {hold}", calibrated, method, hold)
add("calibration of dec-rbcm by averages", calibrated, "dec-rbcm", "rows", consensus="average")


def scored(method: str) -> Record:
    there = calls.fleet(data.field(90, 3), normalize=True, theta=THETA, kernel="matern52")
    x, y = data.rows_of(24, seed=9)
    own = [tuple(shard) for shard in data.stripes(x, y, agents=3)]
    return {
        "table": calls.score(there, x, y, method, s=np.full(len(y), 0.1)),
        "asked": calls.score(there, x, y, method, agent=1, level=0.8),
        "own rows": calls.score(there, own, None, method),
    }


for method in ("dec-nn-grbcm", "dec-rbcm", "npae"):
    add(f"scores of {method}", scored, method)


def validated(by: str, method: str, training: Any, **model: Any) -> Record:
    theta = THETA if training is False else None
    there = calls.fleet(data.field(75, 3), theta=theta, **{"kernel": "matern32", "normalize": True, **model})
    return calls.cross_validate(there, by, method, training, **({"folds": None} if by == "agent" else {}))


add("cross-validation at random", validated, "random", "dec-rbcm", False)
add("cross-validation by agent", validated, "agent", "dec-nn-grbcm", False)
add("cross-validation by block", validated, "block", "dec-nearest", False)
_TRAINING_OF_FOLDS = {"method": "dec-fact-gp", "theta0": START, "tol": 1e-3}
add("cross-validation with trainings", validated, "random", "dec-nn-rbcm", _TRAINING_OF_FOLDS)


def mapped(folder: Path) -> Record:
    there = calls.fleet(data.field(90, 3), theta=THETA, inputs=["lon", "lat"], kernel="matern32")
    three = calls.fleet(data.field(90, 3, dimension=3), theta=[0.9, 0.7, 3.0, 1.2, 0.2], inputs=["a", "b", "day"])
    masked: dict[str, Any] = {"box": [0.0, 0.0, 3.0, 2.0], "mask": lambda places: places[:, 0] > 0.6}
    return {
        "map": calls.map_of(there, (6, 5), "dec-nn-grbcm"),
        "masked": calls.map_of(there, (7, 4), "dec-rbcm", within=0.8, **masked),
        "of a day": calls.map_of(three, (5, 4), "dec-nearest", at={"day": 3.0}, within=np.inf),
    }


CONFIGURATIONS["maps"] = mapped

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
    there = calls.fleet(data.field(75, 3, dimension=dimension), kernel=kernel, normalize=True, inputs=_DAYS[:dimension])
    queries = np.column_stack([QUERIES, np.arange(len(QUERIES)) + 0.5])[:, :dimension]
    record = {"fit": calls.train(there, "dec-fact-gp", rounds=8, tol=0.0)}
    for method in ("dec-nn-grbcm", "dec-npae", "dec-nearest"):
        record[method] = calls.predict(there, queries, method)
    record["joint"] = calls.joint(there, queries, "dec-rbcm")
    if kernel != "matern12":
        record["gradient"] = calls.gradient(there, queries, "full-gp")
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

_TILTED = data.with_level(data.field(90, 3), 8.0, (2.0, -1.0))
for mean in ("constant", "linear"):
    for method in ("dec-fact-gp", "full-gp"):
        how = {"theta0": START, "tol": 1e-4, "engine": "auto" if method == "full-gp" else "dense"}
        model = {"mean": mean, "kernel": "matern32"}
        add(f"mean {mean} by {method}", trained, _TILTED, method, how, "dec-nn-grbcm", **model)


@configuration
def mean_linear_by_few_rounds(folder: Path) -> Record:
    there = calls.fleet(_TILTED, mean="linear", normalize=True, kernel="matern32", graph="cycle")
    fit = calls.train(there, "dec-apx-gp", theta0=START, rounds=15, tol=0.0)
    return {"fit": fit, "gradient": calls.gradient(there, QUERIES, "dec-rbcm")}


@configuration
def mean_constant_by_moments(folder: Path) -> Record:
    there = calls.fleet(_TILTED, mean="constant", normalize=True, kernel="se")
    fit = calls.train(there, "dec-full-gp", theta0=START, engine="auto")
    return {"fit": fit, "answer": calls.predict(there, QUERIES, "dec-full-gp")}


_PLACES = np.array([[10.1, 54.05], [10.3, 54.3], [10.55, 54.2], [11.5, 55.0]])


def on_coordinates(shards: list[Any], places: Any, method: str, how: dict[str, Any], **model: Any) -> Record:
    there = calls.fleet(shards, inputs=["lon", "lat"], **model)
    record = {"fit": calls.train(there, method, **how)}
    for predictor in ("dec-nn-grbcm", "dec-nearest"):
        record[predictor] = calls.predict(there, places, predictor)
    record["gradient"] = calls.gradient(there, places, "dec-rbcm")
    record["map"] = calls.map_of(there, (4, 3), "dec-rbcm")
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
    there = calls.fleet(shards, **{"kernel": "matern32", "normalize": True, "graph": "cycle", **model})
    record = {"fit": calls.train(there, method, **how)}
    for predictor in ("dec-nn-grbcm", "dec-npae", "dec-nearest", "full-gp"):
        record[predictor] = calls.predict(there, QUERIES, predictor, noisy=True)
    record["joint"] = calls.joint(there, QUERIES, "dec-rbcm", noisy=True, agent=1)
    record["gradient"] = calls.gradient(there, QUERIES, "dec-nearest")
    record["calibration"] = calls.calibrate(there, "dec-rbcm", hold="rows", most=20)
    record["validation"] = calls.cross_validate(there, "random", "dec-rbcm", False)
    calls.observe(there, 0, [[0.5, 0.5]], [0.7], [0.3] if len(shards[0]) > 2 else None)
    return {**record, "later": calls.predict(there, QUERIES, "dec-nn-grbcm")}


_BETTER = data.field(90, 3)
_KNOWN_NOISE, _STUCK = data.with_known_noise(_BETTER), data.with_outliers(_BETTER)
for name, shards, model in (
    ("known", _KNOWN_NOISE, {}),
    ("of agents", _BETTER, {"noise": "agents"}),
    ("of groups", _BETTER, {"noise": ["good", "cheap", "good"]}),
    ("known and of groups", _KNOWN_NOISE, {"noise": ["good", "cheap", "good"], "kernel": "se"}),
    ("with outliers", _STUCK, {"robust": True}),
    ("known, of agents, with outliers", data.with_known_noise(_STUCK), {"robust": True, "noise": "agents"}),
):
    add(f"noise {name}", noisy, shards, "dec-fact-gp", {"tol": 1e-3}, **model)
_FEW = {"rounds": 12, "tol": 0.0, "theta0": START}
add("noise known by dec-apx-gp", noisy, _KNOWN_NOISE, "dec-apx-gp", _FEW, kernel="se", normalize=False)
_FEW_OF_GROUPS = {"rounds": 12, "tol": 0.0, "theta0": [*START, 0.3, 0.2]}
add("noise of agents by dec-gapx-gp", noisy, _BETTER, "dec-gapx-gp", _FEW_OF_GROUPS, noise="agents")
add("noise with outliers by fact-gp", noisy, _STUCK, "fact-gp", {"tol": 1e-3}, robust=True)

# ---- engines -----------------------------------------------------------------------------------------------------


def by_engine(engine: str, kernel: str, rows: int, agents: int, how: dict[str, Any], neighbours: int = 30) -> Record:
    there = calls.fleet(
        data.field(rows, agents), kernel=kernel, normalize=True, graph="cycle" if agents > 2 else "path"
    )
    given: dict[str, Any] = {"engine": engine, "neighbours": neighbours}
    record = {"fit": calls.train(there, "dec-fact-gp", **given, **how)}
    for method in ("dec-nn-grbcm", "dec-rbcm", "dec-npae"):
        record[method] = calls.predict(there, QUERIES, method, **given)
    record["joint"] = calls.joint(there, QUERIES, "dec-rbcm", **given)
    record["gradient"] = calls.gradient(there, QUERIES, "dec-rbcm", **given)
    calls.observe(there, 0, [[0.5, 0.5], [0.4, 1.5]], [0.7, 0.1])
    return {**record, "later": calls.predict(there, QUERIES, "dec-rbcm", **given)}


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
    there = calls.fleet(data.with_known_noise(data.field(180, 3)), kernel="matern32", noise="agents", normalize=True)
    given: dict[str, Any] = {"engine": "vecchia", "neighbours": 10}
    record = {"fit": calls.train(there, "dec-fact-gp", rounds=5, tol=0.0, **given)}
    return {**record, "answer": calls.predict(there, QUERIES, "dec-rbcm", **given)}


@configuration
def engine_auto_of_rows_that_are_sampled_first(folder: Path) -> Record:
    """Beyond 1,500 rows an agent trains on a sample first."""
    there = calls.fleet(data.field(1700, 1), kernel="matern32", normalize=True)
    record = {"fit": calls.train(there, "dec-fact-gp", engine="auto", rounds=12, tol=1e-3)}
    return {**record, "answer": calls.predict(there, QUERIES, "dec-rbcm", engine="auto")}


@configuration
def moments_of_the_whole_fleet(folder: Path) -> Record:
    """dec-full-gp, more rows, and a training that goes on from the moments that there are."""
    there = calls.fleet(data.field(400, 4), graph="star", normalize=True)
    record: Record = {"fit": calls.train(there, "dec-full-gp", theta0=START, engine="auto")}
    record["answer"] = calls.predict(there, QUERIES, "dec-full-gp")
    record["joint"] = calls.joint(there, QUERIES[:5], "dec-full-gp")
    record["fine"] = calls.predict(there, QUERIES, "dec-full-gp", theta=[0.3, 0.2, 1.0, 0.1])
    calls.observe(there, 2, [[0.6, 0.6], [2.3, 0.2]], [0.4, 0.5])
    record["later"] = calls.predict(there, QUERIES, "dec-full-gp")
    record["again"] = calls.train(there, "dec-full-gp", theta0=THETA, engine="auto")
    return {**record, "last": calls.predict(there, QUERIES, "dec-full-gp", agent=1, noisy=True)}


# ---- rows that come later ----------------------------------------------------------------------------------------


def streamed(method: str, kernel: str, engine: str, **model: Any) -> Record:
    """Rows come one by one and in blocks, to several agents, between questions; then the fleet trains again."""
    there = calls.fleet(data.field(80, 4), kernel=kernel, **model)
    given: dict[str, Any] = {} if method == "dec-nearest" else {"engine": engine, "neighbours": 15}
    record: Record = {}
    if model.get("theta") is None:
        record["fit"] = calls.train(there, "dec-fact-gp", theta0=START, tol=1e-3, engine=engine, neighbours=15)
    record["0"] = calls.predict(there, QUERIES, method, **given)
    x, y = data.rows_of(24, seed=8)
    ends = np.cumsum([1, 6, 1, 11, 5])
    for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        calls.observe(there, (3 * number) % 4, x[start:end], y[start:end])
        record[str(number + 1)] = calls.predict(there, QUERIES, method, **given)
    calls.observe(there, 2, [[2.6, 2.4]], [0.3])  # beyond the box of all others
    record["outside"] = calls.predict(there, QUERIES, method, **given)
    how = {"theta0": THETA, "rounds": 5, "tol": 0.0, "engine": engine, "neighbours": 15}
    return {**record, "again": calls.train(there, "dec-fact-gp", **how)}


for method, kernel, engine, model in (
    ("dec-nn-grbcm", "matern32", "dense", {"theta": THETA}),
    ("dec-rbcm", "se", "moments", {"theta": THETA, "graph": "cycle"}),
    ("dec-nn-rbcm", "matern32", "vecchia", {"theta": THETA}),
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
    there = calls.fleet_of_files(pattern, kernel="se", normalize=True, graph="cycle", rows=37, **options)
    how: dict[str, Any] = {"theta0": START, "engine": "auto" if "full" in method else "dense"}
    record = {"fit": calls.train(there, method, **how)}
    for predictor in ("dec-full-gp", "dec-nn-grbcm"):
        record[predictor] = calls.predict(there, QUERIES, predictor)
    return record


for kind, method, options in (
    ("csv", "dec-full-gp", {}),
    ("parquet", "full-gp", {"mean": "constant"}),
    ("csv", "dec-fact-gp", {}),
    ("nc", "dec-fact-gp", {}),
    ("parquet", "dec-full-gp", {"coordinates": "scaled"}),
):
    given = "".join(f", {option}" for option in options)
    CONFIGURATIONS[f"files: {kind} in chunks by {method}{given}"] = partial(of_files, kind, method, options)


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
    there = calls.fleet_of_files(files, {"sep": ";"}, agent="who", rows=23, normalize=True, kernel="se")
    record: Record = {"labels": list(there.labels)}
    record["fit"] = calls.train(there, "dec-full-gp", theta0=START, engine="auto")
    return {**record, "answer": calls.predict(there, QUERIES, "dec-full-gp", agent="agent 1")}


@configuration
def a_table(folder: Path) -> Record:
    """Times, missing values, known noise, and a column of agents; then the same rows split in four ways."""
    import pandas as pd

    table = data.frame(data.field(60, 3))
    table["day"] = pd.to_datetime("2021-03-01") + pd.to_timedelta(np.arange(60) % 6, unit="h")
    table["error"] = 0.1 + 0.05 * (np.arange(60) % 3)
    table.loc[[3, 17], "y"] = np.nan
    what: dict[str, Any] = {"inputs": ["a", "b", "day"], "missing": "drop", "kernel": "matern32(a, b) * matern12(day)"}
    there = calls.fleet_of_frame(
        table, agent="who", deviation="error", noise="agents", time_unit="hours", normalize=True, **what
    )
    queries = table[["day", "b", "a"]].iloc[:4]
    record: Record = {"data": calls.of_data(there), "fit": calls.train(there, "dec-fact-gp", rounds=5, tol=0.0)}
    record["answer"] = calls.predict(there, queries, "dec-nn-rbcm", agent="agent 2")
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
    there = calls.outputs(data.two_targets(), ["t", "s"], normalize=True, kernel="matern32", graph="cycle", **model)
    record = {"fits": calls.train_outputs(there, method, **how)}
    for predictor in ("dec-nn-grbcm", "dec-rbcm"):
        record[predictor] = calls.predict_outputs(there, QUERIES, predictor)
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


def converted_kernel() -> Any:
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    return ConstantKernel(1.5, "fixed") * Matern([0.5, 1.0], nu=2.5) + WhiteKernel(0.1)


add("estimator of one agent", estimated, QUERIES, None, False)
add("estimator of four agents", estimated, QUERIES, 4, False, kernel="se", predictor="dec-rbcm", noisy=False)
add("estimator with labels", estimated, QUERIES, None, True, trainer="fact-gp", mean="linear")
_CONVERTED: dict[str, Any] = {
    "kernel": converted_kernel(),
    "partition": "stripes",
    "predictor": "dec-nearest",
    "engine": "auto",
}
add("estimator with a kernel of scikit-learn", estimated, QUERIES, 3, False, **_CONVERTED)


def kept(method: str, predictor: str, shards: list[Any], model: dict[str, Any], folder: Path) -> Record:
    """A model that is saved and read; then it goes on."""
    there = calls.fleet(shards, normalize=True, graph="cycle", **model)
    calls.train(there, method, **_SAVED)
    calibration = calls.calibrate(there, "dec-rbcm", hold="rows", most=20)
    calls.save(there, folder / "model", ["Ada", "Bo", "Cy"], ["lon", "lat"], "sst")
    again = calls.load(folder / "model")
    record = {"calibration": calibration, "model": calls.of_model(again)}
    for name, one in (("written", there), ("read", again)):
        answers = {"answer": calls.predict(one, QUERIES, predictor), "rbcm": calls.predict(one, QUERIES, "dec-rbcm")}
        calls.observe(one, 1, [[0.5, 0.5]], [0.7], [0.1] if len(shards[0]) > 2 else None)
        record[name] = {**answers, "later": calls.predict(one, QUERIES, predictor)}
    return record


_SAVED: dict[str, Any] = {"tol": 1e-3, "rounds": 60, "engine": "auto"}
for name, method, predictor, shards, model in (
    ("of a training", "dec-fact-gp", "dec-nn-grbcm", _TILTED, {"kernel": "matern32", "mean": "linear"}),
    ("of moments", "dec-full-gp", "dec-full-gp", data.field(240, 3), {"kernel": "se"}),
    ("with noise that differs", "dec-fact-gp", "dec-nearest", _KNOWN_NOISE, {"kernel": "matern32", "noise": "agents"}),
    ("of dec-apx-gp", "dec-apx-gp", "dec-npae", _BETTER, {"kernel": "se", "coordinates": "scaled"}),
):
    CONFIGURATIONS[f"model {name}"] = partial(kept, method, predictor, shards, model)


@configuration
def private_rows(folder: Path) -> Record:
    """Nothing that would send a row; calibrated by means over groups of rows."""
    there = calls.fleet(data.field(240, 3), kernel="matern32", normalize=True, private="rows", graph="places")
    record = {"fit": calls.train(there, "dec-fact-gp", tol=1e-3)}
    record["calibration"] = calls.calibrate(there, "dec-nn-rbcm", hold="both", most=60)
    return {**record, "answer": calls.predict_by_default(there, QUERIES), "advice": calls.recommend(there)}


def advised(sizes: list[int], **options: Any) -> Record:
    return {"advice": calls.recommend(sizes, **options)}


_LINK = "9600 bit/s, 2 s, 5 %, half duplex"
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
    there = calls.fleet(data.on_map(), inputs=["lon", "lat"], mean="linear", coordinates="kilometres", normalize=True)
    return {"advice": calls.recommend(there, link="1 kB/s, 100 ms")}


@configuration
def verification(folder: Path) -> Record:
    there = calls.fleet(data.field(90, 3), normalize=True, kernel="matern32")
    calls.train(there, "dec-fact-gp", engine="auto", tol=1e-5)
    return {"checks": calls.verify(there, ["dec-rbcm", "dec-nn-grbcm", "dec-nearest"])}


@configuration
def synthetic_fields(folder: Path) -> Record:
    x, y = data.rows_of(50, seed=3)
    record = {"field": calls.synthetic_field(60, (1.2, 0.3, 1.3, 0.1), 1)}
    record["one input"] = calls.synthetic_field(30, (0.5, 1.0, 0.2), 2)
    return {**record, **{by: calls.partition(x, y, 4, by) for by in ("stripes", "grid", "random", "kmeans")}}


# ---- other processes ---------------------------------------------------------------------------------------------


def on_cluster(backend: str) -> Record:
    """Three workers of a Ray cluster, each with two agents; and files that they read."""
    where: dict[str, Any] = {"backend": backend, "workers": 3 if backend == "ray" else None}
    with calls.fleet(data.field(90, 6), graph="cycle", kernel="matern32", normalize=True, **where) as there:
        record: Record = {
            "tree": calls.train(there, "dec-fact-gp", tol=1e-3),
            "edges": calls.train(there, "dec-apx-gp", theta0=START, rounds=15, tol=0.0),
            "server": calls.train(there, "apx-gp", theta0=START, rounds=10, tol=0.0),
        }
        for method in ("dec-nn-grbcm", "dec-npae", "dec-nearest", "rbcm"):
            record[method] = calls.predict(there, QUERIES, method)
        record["asked"] = calls.predict(there, QUERIES, "dec-nn-rbcm", agent=4)
        calls.observe(there, 3, [[0.5, 0.5], [0.4, 1.5]], [0.7, 0.1])
        record["later"] = calls.predict(there, QUERIES, "dec-nn-grbcm")
        record["average"] = calls.predict(there, QUERIES, "dec-rbcm", consensus="average", rounds=40, tol=1e-4)
    return record


add("a cluster", on_cluster, "ray")
add("what is on a cluster, here", on_cluster, "in-process")
CONFIGURATIONS["commands of a model"] = commands.of_a_model
CONFIGURATIONS["commands of moments"] = commands.of_moments
CONFIGURATIONS["processes of five agents"] = partial(commands.of_processes, agents=5)
CONFIGURATIONS["processes of three agents"] = partial(commands.of_processes_with_noise, agents=3)
