"""The demo: ten agents on a path learn the paper's synthetic field, by every training method."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.experiments.figures import training_figure
from fleetgp.hyperparameters import names
from fleetgp.training import Fit, training_method

AGENTS = 10


def main(arguments: list[str] | None = None) -> None:
    """Train, print the table, and save the picture."""
    parser = argparse.ArgumentParser(prog="python -m fleetgp.experiments.demo", description=__doc__)
    parser.add_argument("--points", type=int, default=2000, help="observations of the whole fleet")
    parser.add_argument("--seed", type=int, default=1, help="which field is drawn")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="where the picture goes")
    chosen = parser.parse_args(arguments)

    console = Console()
    field = fg.synthetic_field(chosen.points, seed=chosen.seed)
    shards = fg.partition(field.inputs, field.observations, agents=AGENTS)
    fleet = fg.Fleet(shards, graph="path")
    console.print(
        f"[bold]FleetGP[/bold]: {AGENTS} agents on a path share a field of {chosen.points:,} noisy observations.\n"
        f"Each holds a stripe of {len(shards[0][1])}. "
        "Every method starts at (l_1, l_2, σ_f, σ_ε) = (2, 0.5, 1, 1).\n",
        highlight=False,
    )
    fits = {m: fleet.train(m, theta0=fg.PAPER_THETA0, progress=True) for m in fg.TRAINING_METHODS}
    console.print(training_table(field.theta, fits))
    console.print(_what_left(fits["dec-gapx-gp"], fits["dec-apx-gp"]), highlight=False)

    chosen.out.mkdir(parents=True, exist_ok=True)
    picture = chosen.out / "training.png"
    training_figure(field, shards, fits["dec-gapx-gp"], fits["full-gp"], chosen.seed).savefig(picture, dpi=150)
    console.print(f"\nThe picture is in [bold]{picture}[/bold].")


def training_table(truth: Array, fits: dict[str, Fit]) -> Table:
    """Estimates per method, against the truth and against full-gp."""
    table = Table(title="Hyperparameters by method", title_justify="left", box=None, padding=(0, 1))
    table.add_column("method", no_wrap=True)
    for name in names(len(truth) - 2):
        table.add_column(name.replace("sigma", "σ").replace("eps", "ε"), justify="right", no_wrap=True)
    for name in ("off truth", "off full", "rounds", "sent"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row("[dim]truth[/dim]", *(f"[dim]{v:.3f}[/dim]" for v in truth))
    full = fits["full-gp"].theta
    for method, fit in fits.items():
        rounds = str(fit.rounds) + ("" if fit.status == "converged" else f" ({fit.status})")
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
        "rounds: until converged, unless said otherwise. sent: on the wire, in all.\n"
        "dec-: over neighbours only; the others need a central node."
    )
    table.caption_justify = "left"
    return table


def _what_left(augmented: Fit, plain: Fit) -> str:
    rows = augmented.ledger.total(kind="observations", sender=0, receiver=1).scalars
    return (
        "\nWhat left agent 0, in scalars, by the ledger:\n"
        f"  dec-apx-gp   {_kinds(plain, 0)}\n  dec-gapx-gp  {_kinds(augmented, 0)}\n"
        f"It shared {rows} of its own observations with dec-gapx-gp, and none with dec-apx-gp."
    )


def _kinds(fit: Fit, agent: int) -> str:
    sent = fit.ledger.sent_by(agent)
    return ", ".join(f"{t.scalars:,} {kind}" for kind, t in sent.items() if kind != "framing")


def readable_bytes(count: int) -> str:
    """Bytes as people read them.

    >>> readable_bytes(123456)
    '123 kB'
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


if __name__ == "__main__":
    main()
