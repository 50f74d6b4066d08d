"""Predictions of many points, block by block: with progress, and kept when interrupted."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import FleetGPWarning, unknown_name
from fleetgp.prediction import prediction_method
from fleetgp.progress import Progress, listening
from fleetgp.storage.kept import Kept
from fleetgp.storage.model import Model

#: Points per block.
BLOCK = 2000
#: From the best to the worst.
STATUSES = ("converged", "round limit", "diverged")


@dataclass(frozen=True)
class Answers:
    """mean, variance and how many took part (T,); share: (M,) of the points in which each agent had a say.

    uninformed: (T,) where the answer is no better than the prior.
    rounds, iterations: of averaging (or DALE), and of JOR before it, for the slowest point.
    """

    method: str
    agent: str
    mean: Array
    variance: Array
    participants: IntArray
    uninformed: BoolArray
    share: Array
    status: str
    rounds: int
    iterations: int
    bytes: int
    jitter: float
    kept: Kept


def ask(
    model: Model,
    queries: Array,
    method: str,
    agent: str | None,
    options: Mapping[str, Any],
    out: Path,
    quiet: bool,
) -> Answers:
    """Ask the fleet. Finished blocks lie beside `out` until the answer is written: the same call goes on from them."""
    from fleetgp.version import __version__

    prediction_method(method)
    asked = model.agents[0] if agent is None else agent
    if asked not in model.agents:
        raise unknown_name("agent", asked, model.agents)
    position = model.agents.index(asked)
    content = hashlib.sha256(queries.tobytes())
    for inputs, observations in model.fleet.shards:
        content.update(inputs.tobytes() + observations.tobytes())
    fleet = model.fleet
    settings = {
        "version": __version__,
        "pieces": 2,  # of what a block holds
        "block": BLOCK,
        "method": method,
        "agent": position,
        "data": content.hexdigest(),
        "theta": model.theta if fleet.fit is None else [fleet.fit.thetas.tolist(), str(fleet.fit.scaling)],
        "kernel": fleet.kernel.name,
        "normalize": fleet.normalize,
        "seed": fleet.seed,
        "graph": [fleet.graph.at(t).edges.tolist() for t in range(fleet.graph.period)],
        **options,
    }
    kept = Kept(out.with_name(f".{out.name}.parts"), settings)
    out.parent.mkdir(parents=True, exist_ok=True)
    blocks: list[dict[str, Any]] = []
    starts = range(0, len(queries), BLOCK)
    with listening(not quiet) as listener:
        if listener is not None:
            listener(Progress(method, 0, len(queries), "", unit="point"))
        for number, start in enumerate(starts):
            block = kept.get(str(number))
            if block is None:
                block = _block(model, queries[start : start + BLOCK], method, position, options)
                if len(starts) > 1:
                    kept.put(str(number), block)
            blocks.append(block)
            if listener is not None:
                done = min(start + BLOCK, len(queries))
                listener(Progress(method, done, len(queries), "", unit="point"))
    return Answers(
        method,
        asked,
        np.concatenate([np.zeros(0), *(block["mean"] for block in blocks)]),
        np.concatenate([np.zeros(0), *(block["variance"] for block in blocks)]),
        np.concatenate([np.zeros(0, dtype=int), *(block["participants"] for block in blocks)]),
        np.concatenate([np.zeros(0, dtype=bool), *(np.array(block["uninformed"], dtype=bool) for block in blocks)]),
        np.sum([np.zeros(len(model.agents)), *(block["said"] for block in blocks)], axis=0) / max(1, len(queries)),
        max((block["status"] for block in blocks), key=STATUSES.index, default="converged"),
        max((block["rounds"] for block in blocks), default=0),
        max((block["iterations"] for block in blocks), default=0),
        sum(block["bytes"] for block in blocks),
        max((block["jitter"] for block in blocks), default=0.0),
        kept,
    )


def _block(model: Model, queries: Array, method: str, position: int, options: Mapping[str, Any]) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FleetGPWarning)  # of points outside the data: told once, of all blocks
        found = model.fleet.predict(queries, method, agent=position, **options)
    return {
        "mean": found.mean.tolist(),
        "variance": found.variance.tolist(),
        "participants": found.participants.sum(axis=0).tolist(),
        "uninformed": found.uninformed.tolist(),
        "said": found.participants.sum(axis=1).tolist(),
        "status": found.status,
        "rounds": found.rounds,
        "iterations": int(found.solver_rounds.max(initial=0)),
        "bytes": found.ledger.bytes,
        "jitter": found.jitter,
    }
