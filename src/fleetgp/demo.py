"""The demo: ten agents on a path learn the paper's synthetic field and map it, by every method."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from rich.console import Console
from rich.table import Table

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data import Field, Shard
from fleetgp.fleet.privacy import PREDICTOR
from fleetgp.metrics import coverage, nlpd, rmse
from fleetgp.model.hyperparameters import names
from fleetgp.plot.charts import draw_history
from fleetgp.plot.maps import field as draw_fleet
from fleetgp.plot.style import symbol
from fleetgp.prediction import Prediction, prediction_method
from fleetgp.training import Fit, training_method
from fleetgp.units import readable_bytes
from fleetgp.validation import check_whole

AGENTS = 10
#: The trainer whose hyperparameters the predictions use.
CHOSEN = "dec-g-fact-gp"
#: Methods whose messages have a long vector for each point: used on fewer points.
COSTLY = ("dec-npae", "dec-npae-star", "dec-nn-npae")
FEW = 20
#: Unseen points that the scores are of.
TESTS = 400
#: An agent takes part in a point if it explains this share of the variance there.
ETA = 0.3
#: The lines that stand for the truth and for the exact GP of all data.
TRUTH_LINE: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1.2}
FULL_LINE: dict[str, Any] = {"color": "tab:red", "linestyle": ":", "linewidth": 1.6}


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
    console.print(_sent_by_one(fits), highlight=False)

    out.mkdir(parents=True, exist_ok=True)
    picture = out / "training.png"
    training_figure(field, shards, fits["dec-gapx-gp"], fits["full-gp"], seed).savefig(picture, dpi=150)
    console.print(f"\nThe picture is in [bold]{picture}[/bold].\n")

    fleet.last_fit, fleet.theta = fits[CHOSEN], fits[CHOSEN].theta
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
        best, full = (_predict(fleet, grid, method) for method in (PREDICTOR, "full-gp"))
    console.print(prediction_table(answers, outputs))
    console.print(_map_note(outputs[PREDICTOR]), highlight=False)
    map_picture = out / "map.png"
    map_figure(synthetic_truth(field, grid, seed), full, best, shards, (0.0, 2.0)).savefig(map_picture, dpi=150)
    console.print(f"\nThe map is in [bold]{map_picture}[/bold].")
    return {**_facts(field.theta, fits, answers, outputs), "pictures": [str(picture), str(map_picture)]}


def _predict(fleet: fg.Fleet, points: Array, method: str) -> Prediction:
    """Predict with a new conditioned fleet, so that each method sends all that it needs."""
    options = prediction_method(method).those_of(eta=ETA)
    return fleet.condition().predict(points[:FEW] if method in COSTLY else points, method, **options)


def _facts(
    truth: Array, fits: dict[str, Fit], answers: Array, outputs: dict[str, Prediction]
) -> dict[str, dict[str, Any] | Array]:
    return {
        "truth": truth,
        "training": {
            method: {"theta": fit.theta, "status": fit.status, "rounds": fit.rounds, "bytes": fit.ledger.bytes}
            for method, fit in fits.items()
        },
        "prediction": {
            method: {
                "rmse": rmse(answer.mean, answers[: len(answer.mean)]),
                "nlpd": nlpd(answer.mean, answer.variance, answers[: len(answer.mean)]),
                "status": answer.status,
                "rounds": answer.rounds,
                "bytes": answer.ledger.bytes,
            }
            for method, answer in outputs.items()
        },
    }


def synthetic_truth(field: Field, points: Array, seed: int) -> Array:
    """Return the noise-free field at other places."""
    return fg.synthetic_field(theta=tuple(field.theta), seed=seed, inputs=points).truth


def prediction_table(truth: Array, outputs: dict[str, Prediction]) -> Table:
    """Return RMSE, NLPD and coverage per method, all against the noise-free truth."""
    table = _table(
        "Predictions by method, of unseen points",
        "off full: root mean square difference to the exact GP.\n"
        "agents: took part in a point, on average. rounds: up and down the spanning tree.\n"
        f"dec-npae, dec-npae-star and dec-nn-npae: {FEW} of the points.",
        *("RMSE", "NLPD", "95% cover", "off full", "agents", "rounds", "sent"),
    )
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
    return table


def _map_note(out: Prediction) -> str:
    apart = float(np.ptp(out.means, axis=0).max())
    alike = f"their means differ by {apart:.0e} at most" if apart else "all have the same mean, to the last bit"
    return (
        f"\nEvery agent can be asked: with {PREDICTOR} {alike}.\n"
        f"A point needed {out.participants.sum(axis=0).mean():.1f} of the {AGENTS} agents, on average."
    )


def training_table(truth: Array, fits: dict[str, Fit]) -> Table:
    """Return the estimates per method, against the truth and full-gp."""
    table = _table(
        "Hyperparameters by method",
        "off: the largest relative difference of a hyperparameter.\n"
        "rounds: until converged; *: not converged. Of full, fact and g-fact, with\n"
        "and without dec-, they are evaluations. sent: on the wire, in all.\n"
        "dec-: over neighbours only; the others need a central node.",
        *(name.replace("sigma", "σ").replace("eps", "ε") for name in names(len(truth) - 2)),
        *("off truth", "off full", "rounds", "sent"),
    )
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
    return table


def _table(title: str, caption: str, *columns: str) -> Table:
    table = Table(title=title, caption=caption, box=None, padding=(0, 1), pad_edge=False)
    table.title_justify = table.caption_justify = "left"
    table.add_column("method", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _sent_by_one(fits: dict[str, Fit]) -> str:
    """Describe what agent 0 sent, by the ledger, with methods that differ in it."""
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


def training_figure(field: Field, shards: list[Shard], fit: Fit, full: Fit, seed: int) -> Figure:
    """Draw the field, the agents' stripes, and how the agents' hyperparameters come together."""
    figure = Figure(figsize=(13, 7.6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[1.3, 1.0], squeeze=False).ravel()
    left, middle, right = above.subplots(1, 3)
    _draw_field(above, left, field, seed)
    draw_fleet(fg.Fleet(shards, "path"), ax=middle)
    middle.set(title="Each agent's observations, and the graph", xlabel="$x_1$", ylabel="$x_2$", aspect="equal")
    _draw_spread(right, fit)
    labels = names(field.inputs.shape[1])
    panels = np.atleast_1d(below.subplots(1, len(labels)))
    for j, (name, ax) in enumerate(zip(labels, panels, strict=True)):
        draw_history(ax, fit.history[:, :, j])
        ax.axhline(field.theta[j], label="truth", **TRUTH_LINE)
        ax.axhline(full.theta[j], label="full-gp (all data pooled)", **FULL_LINE)
        ax.set_title(f"{symbol(name)} of every agent")
        ax.set_xscale("symlog", linthresh=10)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("{x:g}")
        ax.tick_params(axis="y", which="minor", labelsize=7)
    panels[0].legend(fontsize=8, frameon=False)
    figure.suptitle(
        f"{len(shards)} agents on a path agree by {fit.method}, and no agent hands over all its data", fontsize=13
    )
    return figure


def map_figure(
    truth: Array, full: Prediction, prediction: Prediction, shards: list[Shard], extent: tuple[float, float]
) -> Figure:
    """Draw mean and standard deviation on a square grid, beside the truth, and how many agents took part."""
    side = round(len(truth) ** 0.5)
    figure = Figure(figsize=(13, 7.4), layout="constrained")
    panels = figure.subplots(2, 3).ravel()
    low, high = float(truth.min()), float(truth.max())
    deviation = np.sqrt(prediction.variance)
    top = float(max(deviation.max(), np.sqrt(full.variance).max()))
    of_means = {"cmap": "viridis", "vmin": low, "vmax": high}
    of_deviations = {"cmap": "magma", "vmin": 0.0, "vmax": top}
    count, of_counts = (
        prediction.participants.sum(axis=0).astype(float),
        {"cmap": "Greys", "vmin": 0, "vmax": len(shards)},
    )
    images: list[tuple[str, Array, dict[str, Any]]] = [
        ("The truth", truth, of_means),
        (f"Mean, {prediction.method}", prediction.mean, of_means),
        ("Mean, full-gp (all data pooled)", full.mean, of_means),
        ("Agents that took part", count, of_counts),
        (f"Standard deviation, {prediction.method}", deviation, of_deviations),
        ("Standard deviation, full-gp", np.sqrt(full.variance), of_deviations),
    ]
    for ax, (title, values, style) in zip(panels, images, strict=True):
        image = ax.imshow(
            values.reshape(side, side).T, origin="lower", extent=(*extent, *extent), aspect="equal", **style
        )
        figure.colorbar(image, ax=ax, shrink=0.85)
        ax.set(title=title, xlabel="$x_1$", ylabel="$x_2$")
        for left, right in pairwise(shards):
            border = 0.5 * (left[0][:, 0].max() + right[0][:, 0].min())
            ax.axvline(border, color="white" if style["cmap"] != "Greys" else "tab:red", linewidth=0.5, alpha=0.6)
    figure.suptitle(
        f"What every one of the {len(shards)} agents answers (thin lines: the agents' stripes)", fontsize=13
    )
    return figure


def _draw_field(figure: FigureBase, ax: Axes, field: Field, seed: int) -> None:
    side = 140
    low, high = 0.0, 2.0
    grid = fg.synthetic_field(side * side, tuple(field.theta), seed=seed, box=(low, high), inputs="grid")
    image = ax.imshow(
        grid.truth.reshape(side, side).T, origin="lower", extent=(low, high, low, high), cmap="viridis", aspect="equal"
    )
    figure.colorbar(image, ax=ax, shrink=0.85, label="f(x)")
    ax.set(title="The field", xlabel="$x_1$", ylabel="$x_2$")


def _draw_spread(ax: Axes, fit: Fit) -> None:
    spread = np.ptp(np.log(fit.history), axis=1)
    rounds = np.arange(len(spread))
    for j, name in enumerate(names(spread.shape[1] - 2)):
        positive = spread[:, j] > 0.0
        ax.semilogy(rounds[positive], spread[positive, j], label=symbol(name), linewidth=1.4)
    ax.set(title="Disagreement in $\\log\\theta$", xlabel="round", xlim=(0, rounds[-1]))
    ax.grid(alpha=0.25)
    ax.legend(frameon=False, ncols=4, fontsize=9)
