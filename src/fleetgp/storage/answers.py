"""Predictions of many points, block by block, which can be interrupted and continued; maps on disk.

A map is a NetCDF file with coordinates, mean and standard deviations, and a picture. Needs the extra "cli".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp import plot
from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.errors import unknown_name
from fleetgp.files import ResumableCache, whole
from fleetgp.fleet.maps import CELL_STATUS, KNOWN, N_AGENTS, Grid, identifier, map_dataset, on_all_cells
from fleetgp.network import KINDS, InProcess
from fleetgp.prediction import Prediction, PredictionOptions, prediction_method
from fleetgp.prediction.methods import block_size
from fleetgp.prediction.results import worst
from fleetgp.progress import Pace, Progress, listening
from fleetgp.storage.model import Model, settings_of
from fleetgp.storage.sections import calibration_facts
from fleetgp.units import counted
from fleetgp.version import __version__


@dataclass(frozen=True)
class Answers:
    """mean, std (of f), std_observed (of an observation of the agent that is asked), and participants (a count), (T,).

    share: (M,) the share of the points in which each agent took part.
    prior_only: (T,) where the answer is no better than the prior.
    factors: the smallest and the largest factor of a calibration on the standard deviations; 1 without one.
    drawn, held: the sizes of a random sample of the observations in files, and of all of them; 0 without a sample.
    sent: messages, scalars and bytes of each kind of content; `bytes` includes the headers of frames.
    rounds: of the reduction along the tree, of averaging or of DALE.  iterations: of JOR; for the slowest point.
    """

    method: str
    agent: str
    mean: Array
    std: Array
    std_observed: Array
    participants: IntArray
    prior_only: BoolArray
    share: Array
    status: str
    rounds: int
    iterations: int
    bytes: int
    sent: dict[str, dict[str, int]]
    jitter: float
    factors: tuple[float, float]
    drawn: int
    held: int
    kept: ResumableCache


def ask(
    model: Model,
    queries: Array,
    method: str,
    agent: str | None,
    options: Mapping[str, Any],
    out: Path,
    quiet: bool,
) -> Answers:
    """Ask the fleet. Finished blocks are kept beside `out` until the answer is written: the same call continues.

    options: of `Fleet.predict`, for this method; None means the default.
    """
    row = prediction_method(method)
    asked = model.agents[0] if agent is None else agent
    if asked not in model.agents:
        raise unknown_name("agent", asked, model.agents)
    position, fleet = model.agents.index(asked), model.fleet
    given = {name: value for name, value in options.items() if value is not None}
    engine = given.pop("engine", "auto")
    of_engine = given.pop("n_neighbours", None)
    size = block_size(row, InProcess(fleet.graph), PredictionOptions().changed(given))
    settings = _settings(model, queries, method, position, size, options)
    kept = ResumableCache(out.with_name(f".{out.name}.parts"), settings)
    numbers = range(-(-len(queries) // size))
    pieces = {number: piece for number in numbers if (piece := kept.get(str(number))) is not None}
    out.parent.mkdir(parents=True, exist_ok=True)
    blocks = fleet.condition(engine=engine, n_neighbours=of_engine).predict_in_blocks(
        queries, method, agent=position, done=tuple(pieces), **given
    )
    sent: dict[str, dict[str, int]] = {}
    with listening(not quiet) as listener:
        total = len(queries)
        pace = Pace(min(len(pieces) * size, total))

        def report() -> None:
            done = min(len(pieces) * size, total)
            if listener is not None:
                listener(
                    Progress(method, done, total, pace.describe(done, total if done < total else None), unit="point")
                )

        report()
        for number, result in blocks if len(pieces) < len(numbers) else ():
            before, sent = sent, {kind: vars(traffic) for kind, traffic in result.ledger.by_kind().items()}
            pieces[number] = _piece(result, _added([(sent, 1), (before, -1)]))
            if len(numbers) > 1:
                kept.put(str(number), pieces[number])
            report()
    return _joined(method, asked, [pieces[number] for number in numbers], len(model.agents), kept)


def _settings(
    model: Model, queries: Array, method: str, position: int, size: int, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that an answer depends on: pieces with other settings are not used."""
    fleet = model.fleet
    content = hashlib.sha256(queries.tobytes())
    if not fleet.data.in_memory:
        content.update(b"".join(one.packed.tobytes() for one in fleet.data.summaries))
        if fleet.last_fit is not None and fleet.last_fit.moments is not None:
            content.update(fleet.last_fit.moments.packed.tobytes())
    else:
        for own in fleet.data:
            content.update(own.packed.tobytes() + own.values.tobytes())
    return {
        "version": __version__,
        "pieces": 8,  # the version of what a block holds
        "block": size,
        "method": method,
        "agent": position,
        "data": content.hexdigest(),
        "theta": model.theta if fleet.last_fit is None else fleet.last_fit.thetas.tolist(),
        "view": "" if fleet.last_fit is None else [str(fleet.last_fit.scaling), str(fleet.last_fit.coordinates)],
        **settings_of(fleet),
        "coordinates": str(fleet.coordinates),
        "seed": fleet.seed,
        "calibration": None if fleet.calibration is None else calibration_facts(fleet.calibration),
        "graph": [fleet.graph.at(t).edges.tolist() for t in range(fleet.graph.period)],
        **options,
    }


def _added(parts: Iterable[tuple[Mapping[str, Mapping[str, int]], int]]) -> dict[str, dict[str, int]]:
    """Add up what was sent, by kind, each part times a number.

    >>> _added([({"inputs": {"bytes": 5}, "queries": {"bytes": 1}}, 1), ({"inputs": {"bytes": 2}}, -1)])
    {'inputs': {'bytes': 3}, 'queries': {'bytes': 1}}
    """
    whole: dict[str, dict[str, int]] = {}
    for sent, times in parts:
        for kind, counts in sent.items():
            own = whole.setdefault(kind, dict.fromkeys(counts, 0))
            for what, count in counts.items():
                own[what] += times * count
    return whole


def _piece(result: Prediction, sent: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return what is kept of the answer to a block, for JSON. sent: by kind, with the framing."""
    return {
        "mean": result.mean.tolist(),
        "std": result.std.tolist(),
        "std_observed": result.std_observed.tolist(),
        "participants": result.participants.sum(axis=0).tolist(),
        "prior_only": result.prior_only.tolist(),
        "points_of": result.participants.sum(axis=1).tolist(),
        "status": result.status,
        "rounds": result.rounds,
        "iterations": int(result.solver_rounds.max(initial=0)),
        "sent": sent,
        "jitter": result.jitter,
        "factors": [float(result.factor.min(initial=np.inf)), float(result.factor.max(initial=0.0))],
        "drawn": int(result.drawn.sum()),
        "held": int(result.held.sum()),
    }


def _joined(method: str, agent: str, pieces: Sequence[dict[str, Any]], agents: int, kept: ResumableCache) -> Answers:
    def along(name: str, dtype: type) -> Any:
        return np.concatenate([np.zeros(0, dtype), *(np.array(piece[name], dtype) for piece in pieces)])

    columns = {name: along(name, float) for name in ("mean", "std", "std_observed")}
    points_of = np.sum([np.zeros(agents), *(piece["points_of"] for piece in pieces)], axis=0)
    sent = _added((piece["sent"], 1) for piece in pieces)
    low, high = zip(*(piece["factors"] for piece in pieces), strict=True) if pieces else ((1.0,), (1.0,))
    largest: dict[str, Any] = {
        name: max((piece[name] for piece in pieces), default=0)
        for name in ("rounds", "iterations", "jitter", "drawn", "held")
    }
    return Answers(
        method=method,
        agent=agent,
        **columns,
        participants=along("participants", int),
        prior_only=along("prior_only", bool),
        share=points_of / max(1, len(columns["mean"])),
        status=worst(piece["status"] for piece in pieces),
        **largest,
        bytes=sum(one["bytes"] for one in sent.values()),
        sent={kind: sent[kind] for kind in KINDS if kind in sent},
        factors=(min(low), max(high)),
        kept=kept,
    )


PICTURE = ".png"
#: A map of such a name is a picture alone.
PICTURES = (PICTURE, ".pdf")


def save_map(
    path: Path, model: Model, grid: Grid, answers: Answers, chosen: BoolArray, status: Array, units: str
) -> Path:
    """Write the NetCDF file and the picture, or only a picture if `path` is one; return the path of the picture.

    answers: at the chosen cells.  status: (T,) why other cells have none.  units: of the target.
    """
    columns: dict[str, Any] = {"mean": answers.mean, "std": answers.std, "std_observed": answers.std_observed}
    columns |= {N_AGENTS: answers.participants}
    facts = {"method": answers.method, "status": answers.status, "asked_agent": answers.agent}
    known = on_all_cells(status, chosen, answers.prior_only)
    data = map_dataset(model.fleet.snapshot(), grid, columns, known, chosen, facts, units)
    picture = path if path.suffix.lower() in PICTURES else path.with_suffix(PICTURE)
    figure = _draw(grid, data, model, answers)
    with whole(picture) as partial_picture:
        if path != picture:
            with whole(path) as partial:
                data.to_netcdf(partial)
        figure.savefig(partial_picture, dpi=200, format=picture.suffix[1:].lower())
    return picture


def _draw(grid: Grid, data: Any, model: Model, answers: Answers) -> Any:
    """Mean and standard deviation side by side; dots are the observations, at most some thousand of them."""
    panels = plot.map(data, dots=model.fleet)
    everywhere, shown = sum(model.fleet.data.counts), len(panels[0].lines[0].get_xdata())
    ended = "" if answers.status == "converged" else f", {answers.status}"
    blank = "" if (data[CELL_STATUS].values == KNOWN).all() else "; hatched: nothing known"
    dots = "observations" if shown == everywhere else f"{shown:,} of {everywhere:,} observations"
    about = f"dots: {dots}" if shown else "the model knows no single observations"
    chosen = "".join(f", {name} = {_shown(data, name)}" for name in grid.fixed)
    figure = panels[0].figure
    agents = counted(len(model.agents), "agent")
    figure.suptitle(f"{agents}, {answers.method}{ended}{chosen} ({about}{blank})", fontsize=9)
    return figure


def _shown(data: Any, name: str) -> str:
    """The value that an input has in the whole map."""
    value = data[identifier(name)].values
    if value.dtype.kind != "M":
        return f"{float(value):.6g}"
    return str(value.astype("datetime64[s]")).removesuffix("T00:00:00")
