"""Every call of FleetGP that the configurations make, by its public interface alone, and what is recorded of it.

Every option is written out here, so that another default cannot hide. A name that changes in FleetGP changes in this
file and nowhere else. Whatever asks a fleet for something returns a record: plain values and arrays, by name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import fleetgp as fg

#: A value is an array, a number, a text, None, a list of those, or a record again.
Record = dict[str, Any]

TRAINERS = fg.TRAINING_METHODS
PREDICTORS = fg.PREDICTION_METHODS

#: As a `Fleet` takes them. The model is the paper's: se, not normalized.
FLEET: dict[str, Any] = {
    "graph": "path",
    "theta": None,
    "normalize": False,
    "mean": "zero",
    "coordinates": "as-given",
    "kernel": "se",
    "noise": None,
    "robust": False,
    "private": None,
    "seed": 0,
    "inputs": None,
    "backend": "in-process",
    "workers": None,
    "address": None,
}
#: As `Fleet.train` takes them.
TRAINING: dict[str, Any] = {
    "theta0": None,
    "rounds": 2000,
    "tol": 1e-5,
    "seconds": None,
    "rho": None,
    "kappa": None,
    "lipschitz": None,
    "nested": None,
    "step": None,
    "nested_iterations": None,
    "noise_floor": 1e-3,
    "bounds": None,
    "priors": None,
    "fixed": None,
    "seed": 0,
    "engine": "dense",
    "n_neighbours": 30,
    "progress": False,
}

#: What is now called otherwise in what FleetGP returns and prints -> what it was called when records were made.
RECORDED_NAMES = {
    "interval_score": "interval",
    "holdout": "hold",
    "n_neighbours": "neighbours",
    "criterion": "by",
    "split": "by",
    "cell_status": "coverage",
    "n_agents": "agents",
    "prior_only": "uninformed",
}


def as_recorded(value: Any) -> Any:
    """The same with the names in records."""
    if isinstance(value, Mapping):
        return {RECORDED_NAMES.get(name, name): as_recorded(one) for name, one in value.items()}
    return [as_recorded(one) for one in value] if isinstance(value, list) else value


def _options(options: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """All options, with those that a configuration changes; an error for a name that is none."""
    unknown = changes.keys() - options.keys()
    if unknown:
        raise TypeError(f"expected options among {', '.join(options)}, got {', '.join(sorted(unknown))}")
    return {**options, **changes}


def _training_options(method: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    options = dict(TRAINING)
    if method in ("c-gp", "dec-c-gp"):
        options |= {"nested": "l-bfgs", "nested_iterations": 200}
    return _options(options, changes)


def _prediction_options(method: str, changes: Mapping[str, Any], *, posterior: bool = False) -> dict[str, Any]:
    """The options that a method of prediction has. posterior: those of `joint`, `gradient` and `suggest`."""
    if method == "dec-nearest":
        return _options({"theta": None, "n_nearest": 30}, changes)
    options: dict[str, Any] = {"theta": None, "engine": "auto" if "full" in method else "dense", "n_neighbours": 30}
    if method == "dec-summary":
        options |= {"min_rows": 5, "budget": 100_000.0}
        return _options({**options, "local": False} if "local" in changes else options, changes)
    if method.startswith("dec-") and method != "dec-full-gp" and not posterior:
        options["consensus"] = "tree"
        if changes.get("consensus") == "average":
            options |= {"rounds": 20_000, "tol": 1e-6}
    if "-nn-" in method:
        options["eta"] = 1e-3
    if method.endswith("grbcm") or (method == "dec-npae-star" and not posterior):
        options["seed"] = 0
    if method.endswith("grbcm") and not posterior:
        options["beta"] = "relative"
    return _options(options, changes)


# ---- fleets ------------------------------------------------------------------------------------------------------


def new_fleet(shards: Sequence[tuple[Any, ...]], **changes: Any) -> fg.Fleet:
    """shards: (X_i, y_i) of every agent, or (X_i, y_i, s_i) with known standard deviations."""
    options = _options(FLEET, changes)
    return fg.Fleet(shards, options.pop("graph"), **options)


def fleet_of_files(files: Any, reading: Mapping[str, Any] | None = None, **changes: Any) -> fg.Fleet:
    options = {name: value for name, value in FLEET.items() if name not in ("noise", "robust")}
    options |= {"target": "y", "agent": None, "missing": "refuse", "fill": [], "sample": None, "memory": 1e9}
    options |= {"rows": 1 << 17, "cache": None, "progress": False, "inputs": ["a", "b"]}
    options = _options(options, changes)
    return fg.Fleet.from_files(files, options.pop("graph"), reading=_reading(reading or {}), **options)


def _reading(changes: Mapping[str, Any]) -> fg.io.Reading:
    options: dict[str, Any] = {"date": None, "box": None, "stride": None, "sep": None, "decimal": None}
    options |= {"encoding": None, "settable": True, "at": None, "time_unit": "days", "celsius": False}
    return fg.io.Reading(**_options(options, changes))


_TABLE: dict[str, Any] = {
    "target": "y",
    "agent": None,
    "agents": None,
    "by": None,
    "axis": None,
    "deviation": None,
    "missing": "refuse",
    "fill": [],
    "time_unit": "days",
}


def fleet_of_frame(frame: Any, **changes: Any) -> fg.Fleet:
    options = _options({**FLEET, **_TABLE, "units": None, "inputs": ["a", "b"]}, changes)
    return fg.Fleet.from_frame(frame, options.pop("graph"), **options)


def fleet_of_dataset(data: Any, **changes: Any) -> fg.Fleet:
    options = {**FLEET, **_TABLE, "date": None, "box": None, "stride": None, "at": None, "celsius": False}
    options = _options(options, changes)
    return fg.Fleet.from_dataset(data, options.pop("graph"), **options)


def outputs(shards: Sequence[tuple[Any, Any]], targets: Sequence[str], **changes: Any) -> fg.Outputs:
    options = {name: value for name, value in FLEET.items() if name not in ("theta", "noise", "robust")}
    options = _options(options, changes)
    return fg.Outputs(shards, options.pop("graph"), targets=targets, **options)


def graph(agents: int, edges: Sequence[tuple[int, int]]) -> fg.Graph:
    return fg.Graph(agents, edges, connected=True)


def changing_graph(agents: int, rounds: Sequence[Sequence[tuple[int, int]]]) -> list[fg.Graph]:
    """A time-varying graph: the edges of each round of its period."""
    return [fg.Graph(agents, edges, connected=False) for edges in rounds]


def of_data(fleet: fg.Fleet) -> Record:
    """What a fleet has read."""
    read, inputs = fleet.shards, fleet.dimension  # noise may stand behind the inputs
    return {
        "labels": list(fleet.labels),
        "inputs": None if fleet.inputs is None else list(fleet.inputs),
        "names": list(fleet.names),
        "agents": [
            {"inputs": x[:, :inputs], "observations": y} for x, y, *_ in (read[number] for number in range(len(read)))
        ],
    }


# ---- training ----------------------------------------------------------------------------------------------------


def train(fleet: fg.Fleet, method: str, **changes: Any) -> Record:
    return of_fit(fleet.train(method, **_training_options(method, changes)))


def train_outputs(fleet: fg.Outputs, method: str, **changes: Any) -> Record:
    return {target: of_fit(fit) for target, fit in fleet.train(method, **_training_options(method, changes)).items()}


def steps(fleet: fg.Fleet, method: str, count: int, **changes: Any) -> Record:
    """So many rounds of a training, one by one."""
    options = _training_options(method, changes)
    trainer = fleet.trainer(method, **{name: options[name] for name in options if name not in _NOT_OF_STEPS})
    state, record = trainer.start(), Record(theta0=trainer.theta0)
    for number in range(count):
        state, info = trainer.step(state)
        record[str(number)] = {
            "thetas": info.thetas,
            "nll": info.nll,
            "jitter": info.jitter,
            "engine": list(info.engine),
            "rho": info.rho,
            "residual": info.residual,
            "status": info.status,
        }
    return {**record, "ledger": of_ledger(trainer.ledger)}


_NOT_OF_STEPS = ("rounds", "seconds", "progress")


def of_fit(fit: fg.Fit) -> Record:
    mean, coordinates = fit.mean, fit.coordinates
    return {
        "method": fit.method,
        "kernel": fit.kernel,
        "names": list(fit.names),
        "thetas": fit.thetas,
        "theta": fit.theta,
        "history": fit.history,
        "rounds": fit.rounds,
        "status": fit.status,
        "residual": fit.residual,
        "nll": fit.nll,
        "nlls": fit.nlls,
        "penalty": fit.penalty,
        "jitter": fit.jitter,
        "rho": fit.rho,
        "starts": [
            {"theta0": one.theta0, "nll": one.nll, "rounds": one.rounds, "status": one.status} for one in fit.starts
        ],
        "start nlls": fit.start_nlls,
        "offset": fit.scaling.offset,
        "scale": fit.scaling.scale,
        "mean": None
        if mean is None
        else {
            "constant": mean.constant,
            "slopes": list(mean.slopes),
            "at": list(mean.at),
            "errors": list(mean.errors),
            "turns": mean.turns,
            "settled": mean.settled,
        },
        "origin": list(coordinates.origin),
        "unit": list(coordinates.unit),
        "engine": list(fit.engine),
        "approximation": fit.approximation,
        "noise floor": fit.noise_floor,
        "at floor": fit.at_floor,
        "at bounds": list(fit.at_bounds),
        "flat": list(fit.flat),
        "sample": fit.sample,
        "used": fit.used,
        "drawn": fit.drawn,
        "held": fit.held,
        "outliers": fit.outliers,
        "compared": [{"kernel": one.kernel, "density": one.density, "rows": one.rows} for one in fit.compared],
        "ledger": of_ledger(fit.ledger),
    }


def of_ledger(ledger: fg.Ledger) -> Record:
    """Rounds, and messages, numbers and bytes by kind and by edge."""
    return {
        "rounds": ledger.rounds,
        "phases": ledger.rounds_by_phase,
        "messages": ledger.messages,
        "bytes": ledger.bytes,
        "kinds": {kind: [each.messages, each.scalars, each.bytes] for kind, each in ledger.by_kind().items()},
        "edges": {
            f"{sender}>{receiver}": [each.messages, each.scalars, each.bytes]
            for (sender, receiver), each in ledger.by_edge().items()
        },
    }


# ---- predictions -------------------------------------------------------------------------------------------------


def predict(fleet: Any, queries: Any, method: str, observed: bool = False, agent: Any = None, **changes: Any) -> Record:
    options = _prediction_options(method, changes)
    return of_prediction(fleet.predict(queries, method, observed=observed, agent=agent, **options))


def predict_outputs(fleet: fg.Outputs, queries: Any, method: str, **changes: Any) -> Record:
    options = _prediction_options(method, changes)
    answers = fleet.predict(queries, method, observed=False, agent=None, **options)
    return {target: of_prediction(answer) for target, answer in answers.items()}


def predict_by_default(fleet: fg.Fleet, queries: Any) -> Record:
    """By the method that a fleet takes where none is given, with the options that it takes."""
    return of_prediction(fleet.predict(queries))


def condition(fleet: fg.Fleet, **changes: Any) -> fg.ConditionedFleet:
    return fleet.condition(**_options({"theta": None, "engine": "dense", "n_neighbours": 30}, changes))


def predict_conditioned(fleet: fg.ConditionedFleet, queries: Any, method: str, **changes: Any) -> Record:
    options = _prediction_options(method, changes)
    for name in ("theta", "engine", "n_neighbours"):  # of `condition`
        options.pop(name)
    return of_prediction(fleet.predict(queries, method, observed=False, agent=None, **options))


def of_prediction(answer: fg.Prediction) -> Record:
    return {
        "method": answer.method,
        "means": answer.means,
        "variances": answer.variances,
        "field variances": answer.field_variances,
        "std observed": answer.std_observed,
        "noise": answer.noise,
        "explained": answer.explained,
        "factors": answer.factors,
        "uninformed": answer.prior_only,
        "participants": answer.participants,
        "query rounds": answer.query_rounds,
        "solver rounds": answer.solver_rounds,
        "residual": answer.residual,
        "status": answer.status,
        "jitter": answer.jitter,
        "engine": list(answer.engine),
        "drawn": answer.drawn,
        "held": answer.held,
        "ledger": of_ledger(answer.ledger),
    }


def joint(
    fleet: fg.Fleet, queries: Any, method: str, observed: bool = False, agent: Any = None, **changes: Any
) -> Record:
    options = _prediction_options(method, changes, posterior=True)
    result = fleet.joint(queries, method, observed=observed, agent=agent, **options)
    return {
        "method": result.method,
        "mean": result.mean,
        "covariance": result.covariance,
        "participants": result.participants,
        "status": result.status,
        "rounds": result.rounds,
        "jitter": result.jitter,
        "engine": list(result.engine),
        "noise": result.noise,
        "factor": result.factor,
        "uninformed": result.prior_only,
        "draws": result.sample(3, seed=7),
        "ledger": of_ledger(result.ledger),
    }


def sample(fleet: fg.Fleet, queries: Any, n: int, method: str, seed: int) -> Record:
    """seed: of the draws; that of the method is the fleet's."""
    options = _prediction_options(method, {}, posterior=True)
    options.pop("seed", None)
    return {"draws": fleet.sample(queries, n, method, seed=seed, observed=False, agent=None, **options)}


def gradient(fleet: fg.Fleet, queries: Any, method: str, agent: Any = None, **changes: Any) -> Record:
    options = _prediction_options(method, changes, posterior=True)
    result = fleet.gradient(queries, method, agent=agent, **options)
    return {
        "method": result.method,
        "gradient": result.gradient,
        "covariance": result.covariance,
        "kinks": result.kinks,
        "participants": result.participants,
        "status": result.status,
        "rounds": result.rounds,
        "jitter": result.jitter,
        "engine": list(result.engine),
        "ledger": of_ledger(result.ledger),
    }


def suggest(fleet: fg.Fleet, agent: Any, candidates: Any, n: int, by: str, method: str, **changes: Any) -> Record:
    options = _prediction_options(method, changes, posterior=True)
    result = fleet.suggest(agent, candidates, n, criterion=by, method=method, **options)
    return {
        "places": result.places,
        "indices": result.indices,
        "agents": result.agents,
        "gains": result.gains,
        "ledger": of_ledger(result.ledger),
    }


def calibrate(fleet: fg.Fleet, method: str, **changes: Any) -> Record:
    holding: dict[str, Any] = {"holdout": "both", "level": 0.95, "cells": None, "max_rows": 300}
    options = {**holding, **_prediction_options(method, {}), "seed": 0}
    for name in ("theta", "beta"):
        options.pop(name, None)
    result = fleet.calibrate(method, **_options(options, changes))
    ledger = result.ledger
    return {
        "method": result.method,
        "knots": as_recorded([asdict(knot) for knot in result.knots]),
        "ledger": None if ledger is None else of_ledger(ledger),
    }


def score(fleet: fg.Fleet, X: Any, y: Any, method: str, **changes: Any) -> Record:
    options = {"s": None, "agent": None, "level": 0.95, **_prediction_options(method, {})}
    return of_scores(fleet.score(X, y, method, **_options(options, changes)))


def of_scores(result: fg.Scores) -> Record:
    record: Record = as_recorded(
        {
            **result.numbers,
            "answers": [one.numbers for one in result.answers],
            "rows of": [None if one is None else one.numbers for one in result.rows_of],
        }
    )
    return record


def cross_validate(fleet: fg.Fleet, by: Any, method: str, training: Any, **changes: Any) -> Record:
    """training: False, or the options of training, with its method."""
    options: dict[str, Any] = {"folds": 3, "cells": 20 if by == "block" else None, "level": 0.95, "seed": 0}
    options["progress"] = False
    options |= _prediction_options(method, {})
    options.pop("theta")
    if isinstance(training, Mapping):
        named = training["method"]
        others = {name: value for name, value in training.items() if name != "method"}
        training = {"method": named, **_training_options(named, others)}
    options = _options(options, changes)
    result = fleet.cross_validate(options.pop("folds"), by, method, train=training, kept=None, **options)
    return {
        "folds": [
            {
                "means": list(fold.means),
                "variances": list(fold.variances),
                "theta": fold.theta,
                "training": fold.training,
                "prediction": fold.prediction,
                "relays": list(fold.relays),
                "uninformed": fold.prior_only,
                "rounds": fold.rounds,
                "bytes": fold.bytes,
            }
            for fold in result.folds
        ],
        "fold of": list(result.fold_of),
        "scores": of_scores(result.scores),
        "fold scores": [of_scores(one) for one in result.fold_scores],
    }


def observe(fleet: fg.Fleet, agent: Any, X: Any, y: Any, s: Any = None) -> None:
    fleet.observe(agent, X, y, s)


def map_of(fleet: fg.Fleet, grid: tuple[int, int], method: str, **changes: Any) -> Record:
    options: dict[str, Any] = {"box": None, "at": None, "within": 0.5, "mask": None, "observed": False, "agent": None}
    options |= _prediction_options(method, {})
    return of_dataset(fleet.map(grid, method=method, **_options(options, changes)))


def of_dataset(data: Any) -> Record:
    record: Record = as_recorded({str(name): np.asarray(data[name].values) for name in (*data.coords, *data.data_vars)})
    return record


# ---- models, estimators, advice ----------------------------------------------------------------------------------


def save(fleet: fg.Fleet, folder: Path, agents: Sequence[str], inputs: Sequence[str], target: str) -> None:
    fg.save_model(fg.Model(fleet, tuple(agents), tuple(inputs), target, ""), folder, overwrite=False)


def load(folder: Path) -> fg.Fleet:
    return fg.load_model(folder, backend="in-process", workers=None, address=None).fleet


def of_model(fleet: fg.Fleet) -> Record:
    """What a fleet knows that was trained, or that was read from a folder."""
    fit = fleet.last_fit
    return {
        "theta": fleet.theta,
        "names": list(fleet.names),
        "labels": list(fleet.labels),
        "status": None if fit is None else fit.status,
        "nll": None if fit is None else fit.nll,
        "ledger": None if fit is None else of_ledger(fit.ledger),
    }


def regressor(**changes: Any) -> Any:
    options: dict[str, Any] = {
        "kernel": "matern32",
        "n_agents": None,
        "partition": "kmeans",
        "graph": "places",
        "mean": "zero",
        "normalize": True,
        "trainer": "dec-fact-gp",
        "predictor": "dec-nn-grbcm",
        "engine": "dense",
        "noise_floor": 1e-3,
        "bounds": None,
        "priors": None,
        "fixed": None,
        "observed": True,
        "random_state": 0,
    }
    return fg.FleetGPRegressor(**_options(options, changes))


def of_regressor(model: Any, queries: Any, agent: Any = None) -> Record:
    """What a fitted estimator knows and answers."""
    mean, std = model.predict(queries, return_std=True, return_cov=False, agent=agent)
    together, covariance = model.predict(queries, return_std=False, return_cov=True, agent=agent)
    likelihood, slope = model.log_marginal_likelihood(None, eval_gradient=True)
    return {
        "theta": model.theta_,
        "names": list(model.theta_names_),
        "noise": model.noise_,
        "status": model.status_,
        "agents": model.n_agents_,
        "fit": None if model.fleet_.last_fit is None else of_fit(model.fleet_.last_fit),
        "mean": mean,
        "std": std,
        "joint mean": together,
        "covariance": covariance,
        "draws": model.sample_y(queries, 2, random_state=1),
        "likelihood": likelihood,
        "slope": slope,
    }


def recommend(data: Any, **changes: Any) -> Record:
    """data: a fleet, or how many rows each agent has."""
    options: dict[str, Any] = {"graph": None, "link": None, "private": None, "kernel": None, "accuracy": "balanced"}
    options |= {"queries": 100, "agent": None, "dimension": None}
    facts = fg.recommend(data, **_options(options, changes)).facts
    del facts["why"]  # sentences
    facts["candidates"] = {
        f"{one['task']} by {one['method']}": {**one, "refused": bool(one["refused"])} for one in facts["candidates"]
    }
    return dict(facts)


def verify(fleet: fg.Fleet, methods: Sequence[str]) -> Record:
    result = fg.verify(fleet, hold=0.1, seed=0, methods=methods)
    return {one.name: {"verdict": one.verdict, "measured": one.measured, "limit": one.limit} for one in result.checks}


def synthetic_field(rows: int, theta: Sequence[float], seed: int) -> Record:
    box = (0.0, 2.0)
    field = fg.synthetic_field(rows, theta, seed=seed, box=box, inputs="uniform")
    return {"inputs": field.inputs, "observations": field.observations, "truth": field.truth}


def partition(X: Any, y: Any, agents: int, by: Any) -> Record:
    parts = fg.partition(X, y, None, agents=agents, by=by, axis=0, seed=0)
    return {str(number): {"inputs": x, "observations": z} for number, (x, z) in enumerate(parts)}


# ---- the command line --------------------------------------------------------------------------------------------


def command(*arguments: object, folder: Path) -> str:
    """What `python -m fleetgp` prints; an error if it fails."""
    typed = [sys.executable, "-m", "fleetgp", *map(str, arguments)]
    done = subprocess.run(typed, cwd=folder, capture_output=True, text=True, env={**os.environ}, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(typed)}: {done.stderr}")
    return done.stdout


def warning_names(caught: Iterable[Any]) -> list[str]:
    """The kinds of warnings of FleetGP that were given."""
    return sorted({one.category.__name__ for one in caught if issubclass(one.category, fg.FleetGPWarning)})
