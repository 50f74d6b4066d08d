"""Every trainer on every graph, every predictor, and all that can be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.same import calls, data
from tests.same.calls import PREDICTORS, TRAINERS, Record
from tests.same.data import QUERIES, START, THETA
from tests.same.registry import add, configuration

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
    fleet = calls.new_fleet(shards, **model)
    fit = calls.train(fleet, method, **how)
    return {"fit": fit, "answer": calls.predict(fleet, QUERIES, predictor)}


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
    return {"steps": calls.steps(calls.new_fleet(data.field()), method, count, theta0=START)}


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
    fleet = calls.new_fleet(data.field(90, 6), graph=graph, normalize=True)
    record = {
        "edges": calls.train(fleet, "dec-apx-gp", theta0=START, rounds=12, tol=0.0),
        "tree": calls.train(fleet, "dec-fact-gp", theta0=START, rounds=4, tol=0.0),
    }
    for method in ("dec-nn-grbcm", "dec-nearest"):
        record[method] = calls.predict(fleet, QUERIES, method)
    record["asked"] = calls.predict(fleet, QUERIES, "dec-nn-rbcm", agent=4)
    record["average"] = calls.predict(fleet, QUERIES, "dec-rbcm", consensus="average", rounds=60, tol=1e-4)
    return record


for name, graph in GRAPHS.items():
    add(f"on {name}", on_graph, graph)


# ---- predictors --------------------------------------------------------------------------------------------------


def answers(method: str, **changes: Any) -> Record:
    """An answer to all, the same once more, and one to an agent that asks about observations."""
    fleet = calls.new_fleet(data.uneven(), graph="cycle", theta=THETA, kernel="se")
    return {
        "first": calls.predict(fleet, QUERIES, method, **changes),
        "again": calls.predict(fleet, QUERIES[:3], method, **changes),
        "asked": calls.predict(fleet, QUERIES, method, observed=True, agent=2, **changes),
    }


_ALONG_TREES = ("dec-full-gp", "dec-nearest", "dec-summary")
_AVERAGED = [name for name in PREDICTORS if name.startswith("dec-") and name not in _ALONG_TREES]
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
    ("groups of eight", "dec-summary", {"min_rows": 8}),
    ("a small budget", "dec-summary", {"budget": 400.0}),
    ("groups of single rows", "dec-summary", {"min_rows": 1}),
    ("every agent alone", "dec-summary", {"local": True}),
    ("seven neighbours", "dec-nearest", {"n_nearest": 7}),
    ("another theta", "dec-rbcm", {"theta": [0.5, 0.5, 1.0, 0.1]}),
    ("vectors", "dec-npae", {"engine": "auto"}),
    ("vectors", "npae", {"engine": "moments"}),
):
    add(f"predictor {method} with {name}", answers, method, **changes)


@configuration
def a_conditioned_fleet(folder: Path) -> Record:
    """Query after query by several methods, which share posteriors."""
    fleet = calls.condition(calls.new_fleet(data.uneven(), theta=THETA, kernel="matern52"))
    return {
        method: calls.predict_conditioned(fleet, QUERIES, method)
        for method in ("dec-poe", "dec-nn-grbcm", "dec-npae", "grbcm", "dec-nn-npae", "dec-rbcm")
    }


@configuration
def one_agent_alone(folder: Path) -> Record:
    """Every method is then the posterior of its data."""
    fleet = calls.new_fleet(data.field(40, 1), normalize=True, kernel="matern52")
    record: Record = {"fit": calls.train(fleet, "dec-fact-gp", theta0=START)}
    for method in ("dec-nn-grbcm", "dec-rbcm", "dec-npae", "dec-nearest"):
        record[method] = calls.predict(fleet, QUERIES, method)
    return {**record, "joint": calls.joint(fleet, QUERIES, "dec-rbcm"), "slope": calls.gradient(fleet, QUERIES, "poe")}


# ---- all that can be asked ---------------------------------------------------------------------------------------

_EXACT = ("full-gp", "dec-full-gp", "dec-nearest")
_COMMITTEES = ("poe", "dec-gpoe", "dec-bcm", "rbcm", "dec-nn-rbcm", "dec-grbcm", "dec-nn-grbcm")
CANDIDATES = np.stack(np.meshgrid(np.linspace(0.05, 1.95, 5), np.linspace(0.1, 1.9, 4)), -1).reshape(-1, 2)


def together(method: str, kernel: str) -> Record:
    """Joint posteriors, draws, gradients and places to measure at."""
    fleet = calls.new_fleet(data.uneven(), graph="cycle", theta=THETA, kernel=kernel, normalize=True)
    return {
        "joint": calls.joint(fleet, QUERIES, method),
        "asked": calls.joint(fleet, QUERIES[:4], method, observed=True, agent=3),
        "sample": calls.sample(fleet, QUERIES[:4], 3, method, seed=11),
        "gradient": calls.gradient(fleet, QUERIES, method),
        "suggestion": calls.suggest(fleet, 1, CANDIDATES, 3, "mutual-information", method),
        "suggestions": calls.suggest(fleet, None, CANDIDATES, 2, "variance", method),
    }


for method in (*_EXACT, *_COMMITTEES, "dec-summary"):
    add(f"together by {method}", together, method, "se")
for method in ("full-gp", "dec-nearest", "dec-nn-grbcm"):
    add(f"together by {method} with matern12", together, method, "matern12")


@configuration
def places_of_agents_own(folder: Path) -> Record:
    """Candidates of each agent, some of them twice, after a calibration."""
    fleet = calls.new_fleet(data.field(120, 3), theta=THETA, kernel="matern32")
    calibration = calls.calibrate(fleet, "dec-rbcm", holdout="rows", max_rows=20)
    own = [CANDIDATES[:8], np.concatenate([CANDIDATES[5:14], CANDIDATES[5:7]]), CANDIDATES[10:]]
    return {
        "calibration": calibration,
        "suggestions": calls.suggest(fleet, None, own, 2, "mutual-information", "dec-rbcm"),
        "joint": calls.joint(fleet, QUERIES, "dec-rbcm"),
    }


def calibrated(method: str, hold: str, **changes: Any) -> Record:
    fleet = calls.new_fleet(data.field(160, 4), normalize=True, kernel="matern32", theta=THETA)
    record = {"calibration": calls.calibrate(fleet, method, holdout=hold, max_rows=40, **changes)}
    record["answer"] = calls.predict(fleet, QUERIES, method)
    return {**record, "score": calls.score(fleet, *data.rows_of(30, seed=9), method)}


for method, hold in (
    ("dec-rbcm", "both"),
    ("dec-nn-grbcm", "rows"),
    ("dec-nearest", "blocks"),
    ("gpoe", "both"),
    ("dec-summary", "rows"),
):
    add(f"calibration of {method} by {hold}", calibrated, method, hold)
add("calibration of dec-rbcm by averages", calibrated, "dec-rbcm", "rows", consensus="average")


def scored(method: str) -> Record:
    fleet = calls.new_fleet(data.field(90, 3), normalize=True, theta=THETA, kernel="matern52")
    x, y = data.rows_of(24, seed=9)
    own = [tuple(shard) for shard in data.stripes(x, y, agents=3)]
    return {
        "table": calls.score(fleet, x, y, method, s=np.full(len(y), 0.1)),
        "asked": calls.score(fleet, x, y, method, agent=1, level=0.8),
        "own rows": calls.score(fleet, own, None, method),
    }


for method in ("dec-nn-grbcm", "dec-rbcm", "npae"):
    add(f"scores of {method}", scored, method)


def validated(by: str, method: str, training: Any, **model: Any) -> Record:
    theta = THETA if training is False else None
    fleet = calls.new_fleet(data.field(75, 3), theta=theta, **{"kernel": "matern32", "normalize": True, **model})
    return calls.cross_validate(fleet, by, method, training, **({"folds": None} if by == "agent" else {}))


add("cross-validation at random", validated, "random", "dec-rbcm", False)
add("cross-validation by agent", validated, "agent", "dec-nn-grbcm", False)
add("cross-validation by block", validated, "block", "dec-nearest", False)
_TRAINING_OF_FOLDS = {"method": "dec-fact-gp", "theta0": START, "tol": 1e-3}
add("cross-validation with trainings", validated, "random", "dec-nn-rbcm", _TRAINING_OF_FOLDS)


@configuration
def maps(folder: Path) -> Record:
    fleet = calls.new_fleet(data.field(90, 3), theta=THETA, inputs=["lon", "lat"], kernel="matern32")
    three = calls.new_fleet(data.field(90, 3, dimension=3), theta=[0.9, 0.7, 3.0, 1.2, 0.2], inputs=["a", "b", "day"])
    masked: dict[str, Any] = {"box": [0.0, 0.0, 3.0, 2.0], "mask": lambda places: places[:, 0] > 0.6}
    return {
        "map": calls.map_of(fleet, (6, 5), "dec-nn-grbcm"),
        "masked": calls.map_of(fleet, (7, 4), "dec-rbcm", within=0.8, **masked),
        "of a day": calls.map_of(three, (5, 4), "dec-nearest", at={"day": 3.0}, within=np.inf),
    }
