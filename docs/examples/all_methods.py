"""Comparing all methods for a paper: every trainer, every predictor, on the same draws, with what each sent."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.figure import Figure

import fleetgp as fg

rcParams["font.size"] = 8
THETA = (1.2, 0.3, 1.3, 0.1)  # the paper's field


def compared(seed: int, rows: int, agents: int) -> pd.DataFrame:
    """A row for each method: what it is for, how good it was on 300 unseen observations, and what it cost."""
    field = fg.synthetic_field(rows + 300, THETA, seed=seed)
    shards = fg.partition(field.inputs[:rows], field.observations[:rows], agents=agents)
    X, y = field.inputs[rows:], field.observations[rows:]
    found: list[dict[str, Any]] = []
    for method in fg.TRAINING_METHODS:
        fleet = fg.Fleet(shards, graph="cycle", kernel="se", normalize=False)
        theta0 = None if method.endswith("full-gp") else [0.8, 0.5, 1.0, 0.3]  # the same for all that iterate
        fit = fleet.train(method, theta0=theta0, tol=1e-3, rounds=300)
        off = float(np.sqrt(np.mean(np.log(fit.theta / THETA) ** 2)))
        found.append({"method": method, "for": "training", "off": off, "bytes": fit.ledger.bytes, "status": fit.status})
    fleet = fg.Fleet(shards, graph="cycle", theta=THETA, kernel="se", normalize=False)  # the same theta for all
    for method in fg.PREDICTION_METHODS:
        out = fleet.condition().predict(X, method)  # each pays for all that it needs
        scores = fg.score(out, y)
        row = {"method": method, "for": "prediction", "off": scores.rmse, "coverage": scores.coverage}
        found.append(row | {"bytes": out.ledger.bytes, "status": out.status})
    return pd.DataFrame(found).assign(seed=seed, server=lambda t: ~t["method"].str.startswith("dec-"))


def panels(axes: Any, table: pd.DataFrame, columns: dict[str, str]) -> None:
    """A row for each method, the best first; hollow marks need a server."""
    table = table.sort_values(["off", "bytes"], ascending=False)
    for ax, (column, label) in zip(axes, columns.items(), strict=True):
        faces = ["white" if server else "#0072B2" for server in table["server"]]
        ax.scatter(table[column], table["method"], s=18, color=faces, edgecolor="#0072B2", zorder=2)
        ax.grid(alpha=0.3, linewidth=0.4)
        ax.set_xlabel(label)
        ax.label_outer()


def main(quick: bool = False) -> tuple[Figure, dict[str, float]]:
    seeds, rows, agents = ((1,), 160, 4) if quick else ((1, 2, 3), 640, 8)
    every = pd.concat([compared(seed, rows, agents) for seed in seeds])
    every["kB"] = every["bytes"] / 1e3
    table = every.groupby(["for", "method", "server"], sort=False).mean(numeric_only=True).reset_index()
    training, prediction = (table[table["for"] == what] for what in ("training", "prediction"))
    figure = Figure(figsize=(9.0, 3.9), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=[1.0, 1.4])
    axes = parts[0].subplots(1, 2, sharey=True), parts[1].subplots(1, 3, sharey=True)
    panels(axes[0], training, {"off": "distance of\nlog theta from truth", "kB": "sent (kB)"})
    panels(
        axes[1], prediction, {"off": "error, unseen\nobservations", "kB": "sent (kB)", "coverage": "in 95%\nintervals"}
    )
    axes[1][2].axvline(0.95, color="0.4", linestyle=":")
    for ax in (axes[0][1], axes[1][1]):
        ax.set_xscale("log")
    at = table.set_index(["for", "method"])
    return figure, {
        **{f"{m}: distance of log theta": float(at.loc[("training", m), "off"]) for m in training["method"]},
        **{f"{m}: error": float(at.loc[("prediction", m), "off"]) for m in prediction["method"]},
    }


if __name__ == "__main__":
    drawn, numbers = main()
    drawn.savefig("all_methods.png", dpi=150)
    print(*(f"{name}: {value:.3g}" for name, value in numbers.items()), sep="\n")
