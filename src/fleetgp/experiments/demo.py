"""The demo: ten agents on a path learn the paper's synthetic field and map it, by every method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.experiments.figures import map_figure, training_figure
from fleetgp.given import check_whole
from fleetgp.gp.hyperparameters import names
from fleetgp.metrics import coverage, nlpd, rmse
from fleetgp.prediction import prediction_method
from fleetgp.training import Fit, training_method
from fleetgp.units import readable_bytes

AGENTS = 10
#: The trainer whose hyperparameters the predictions have: the default of `Fleet.train`.
CHOSEN = "dec-g-fact-gp"
#: Methods whose messages carry a long vector for each point: shown on fewer points.
DEAR = ("dec-npae", "dec-npae-star", "dec-nn-npae")
FEW = 20
#: Unseen points that the methods are judged by.
TESTS = 400
#: An agent takes part in a point if it explains this share of the variance there.
ETA = 0.3


def run(points: int, seed: int, side: int, out: Path, console: Console) -> dict[str, Any]:
    """Train, predict, print the tables, and save the pictures; the numbers, for programs.

    points: observations of the whole fleet.  seed: which field is drawn.  side: the map's points along each axis.
    """
    for name, value, least in (("points", points, 2 * AGENTS), ("seed", seed, 0), ("grid", side, 2)):
        check_whole(name, value, least=least)
    field = fg.synthetic_field(points, seed=seed)
    shards = fg.partition(field.inputs, field.observations, agents=AGENTS)
    fleet = fg.Fleet(shards, graph="path", kernel="se", normalize=False)
    console.print(
        f"[bold]FleetGP[/bold]: {AGENTS} agents on a path share a field of {points:,} noisy observations.\n"
        f"Each holds a stripe of {len(shards[0][1])}. "
        "Every method starts at (l_1, l_2, σ_f, σ_ε) = (2, 0.5, 1, 1).\n",
        highlight=False,
    )
    fits = {m: fleet.train(m, theta0=fg.PAPER_THETA0, progress=True) for m in fg.TRAINING_METHODS}
    console.print(training_table(field.theta, fits))
    console.print(_what_left(fits), highlight=False)

    out.mkdir(parents=True, exist_ok=True)
    picture = out / "training.png"
    training_figure(field, shards, fits["dec-gapx-gp"], fits["full-gp"], seed).savefig(picture, dpi=150)
    console.print(f"\nThe picture is in [bold]{picture}[/bold].\n")

    fleet.fit, fleet.theta = fits[CHOSEN], fits[CHOSEN].theta
    unseen = np.random.default_rng([seed, 9]).uniform(0.0, 2.0, (TESTS, 2))
    answers = synthetic_truth(field, unseen, seed)
    with console.status("") as spinner:
        outputs = {}
        for method in fg.PREDICTION_METHODS:
            spinner.update(f"predicting by {method} ...")
            outputs[method] = _predict(fleet, unseen, method)
        spinner.update("drawing the map ...")
        axis = np.linspace(0.0, 2.0, side)
        grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        best, full = (_predict(fleet, grid, method) for method in ("dec-nn-grbcm", "full-gp"))
    console.print(prediction_table(answers, outputs))
    console.print(_map_note(outputs["dec-nn-grbcm"]), highlight=False)
    map_picture = out / "map.png"
    map_figure(synthetic_truth(field, grid, seed), full, best, shards, (0.0, 2.0)).savefig(map_picture, dpi=150)
    console.print(f"\nThe map is in [bold]{map_picture}[/bold].")
    return {**_facts(field.theta, fits, answers, outputs), "pictures": [str(picture), str(map_picture)]}


def _predict(fleet: fg.Fleet, points: Array, method: str) -> fg.Prediction:
    """Conditioned afresh, each method sends all that it needs."""
    options = prediction_method(method).those_of(eta=ETA)
    return fleet.condition().predict(points[:FEW] if method in DEAR else points, method, **options)


def _facts(
    truth: Array, fits: dict[str, Fit], answers: Array, outputs: dict[str, fg.Prediction]
) -> dict[str, dict[str, Any] | Array]:
    """The tables' numbers, for programs."""
    return {
        "truth": truth,
        "training": {
            method: {"theta": fit.theta, "status": fit.status, "rounds": fit.rounds, "bytes": fit.ledger.bytes}
            for method, fit in fits.items()
        },
        "prediction": {
            method: {
                "rmse": rmse(found.mean, answers[: len(found.mean)]),
                "nlpd": nlpd(found.mean, found.variance, answers[: len(found.mean)]),
                "status": found.status,
                "rounds": found.rounds,
                "bytes": found.ledger.bytes,
            }
            for method, found in outputs.items()
        },
    }


def synthetic_truth(field: fg.Field, points: Array, seed: int) -> Array:
    """The noise-free field at other places."""
    return fg.synthetic_field(theta=tuple(field.theta), seed=seed, inputs=points).truth


def prediction_table(truth: Array, outputs: dict[str, fg.Prediction]) -> Table:
    """RMSE, NLPD and coverage per method, all against the noise-free truth."""
    table = Table(title="Predictions by method, of unseen points", title_justify="left", box=None, padding=(0, 1))
    table.add_column("method", no_wrap=True)
    for name in ("RMSE", "NLPD", "95 % cover", "off full", "agents", "rounds", "sent"):
        table.add_column(name, justify="right", no_wrap=True)
    full = outputs["full-gp"]
    for method, out in outputs.items():
        seen, some = truth[: len(out.mean)], len(out.mean)
        table.add_row(
            f"[bold]{method}[/bold]" if method.startswith("dec-") else method,
            f"{rmse(out.mean, seen):.4f}",
            f"{nlpd(out.mean, out.variance, seen):.2f}",
            f"{coverage(out.mean, out.variance, seen):.0%}",
            "" if method == "full-gp" else f"{rmse(out.mean, full.mean[:some]):.4f}",
            f"{out.participants.sum(axis=0).mean():.1f}",
            str(out.rounds) if method.startswith("dec-") else "",
            readable_bytes(out.ledger.bytes),
        )
    table.caption = (
        "off full: root mean square difference to the exact GP.\n"
        "agents: took part in a point, on average. rounds: up and down the spanning tree.\n"
        f"dec-npae, dec-npae-star and dec-nn-npae: {FEW} of the points."
    )
    table.caption_justify = "left"
    return table


def _map_note(out: fg.Prediction) -> str:
    apart = float(np.ptp(out.means, axis=0).max())
    alike = f"their means differ by {apart:.0e} at most" if apart else "all have the same mean, to the last bit"
    return (
        f"\nEvery agent can be asked: with dec-nn-grbcm {alike}.\n"
        f"A point needed {out.participants.sum(axis=0).mean():.1f} of the {AGENTS} agents, on average (eta = {ETA})."
    )


def training_table(truth: Array, fits: dict[str, Fit]) -> Table:
    """Estimates per method, against the truth and against full-gp."""
    table = Table(title="Hyperparameters by method", title_justify="left", box=None, padding=(0, 1), pad_edge=False)
    table.add_column("method", no_wrap=True)
    for name in names(len(truth) - 2):
        table.add_column(name.replace("sigma", "σ").replace("eps", "ε"), justify="right", no_wrap=True)
    for name in ("off truth", "off full", "rounds", "sent"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row("[dim]truth[/dim]", *(f"[dim]{v:.3f}[/dim]" for v in truth))
    full = fits["full-gp"].theta
    for method, fit in fits.items():
        rounds = str(fit.rounds) + ("" if fit.status == "converged" else "*")
        table.add_row(
            f"[bold]{method}[/bold]" if training_method(method).decentralized else method,
            *(f"{v:.3f}" for v in fit.theta),
            f"{np.abs(fit.theta / truth - 1.0).max():.1%}",
            "" if method == "full-gp" else f"{np.abs(fit.theta / full - 1.0).max():.1%}",
            rounds,
            readable_bytes(fit.ledger.bytes),
        )
    table.caption = (
        "off: the largest relative difference of a hyperparameter.\n"
        "rounds: until converged; *: not converged. Of full, fact and g-fact, with\n"
        "and without dec-, they are evaluations. sent: on the wire, in all.\n"
        "dec-: over neighbours only; the others need a central node."
    )
    table.caption_justify = "left"
    return table


def _what_left(fits: dict[str, Fit]) -> str:
    """By the ledger, of some methods that differ in it."""
    rows = fits[CHOSEN].ledger.total(kind="observations", sender=0, receiver=1).scalars
    lines = "".join(
        f"  {method:<14}{_kinds(fits[method], 0)}\n" for method in ("dec-full-gp", "dec-fact-gp", CHOSEN, "dec-apx-gp")
    )
    return (
        f"\nWhat left agent 0, in scalars, by the ledger:\n{lines}"
        f"It shared {rows} of its own observations with {CHOSEN},\nand none with the others."
    )


def _kinds(fit: Fit, agent: int) -> str:
    sent = fit.ledger.sent_by(agent)
    return ", ".join(f"{t.scalars:,} {kind}" for kind, t in sent.items() if kind != "framing")
