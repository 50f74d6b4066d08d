"""The figures of the pages: `make figures`, or `python docs/figures/draw.py reduction` for one of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import answers
import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from panels import AGENTS, FIRST, SECOND, STYLE, WIDTH

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.graph import Topology
from fleetgp.graph.tree import Tree

FOLDER = Path(__file__).parent
GREY, DARK = "#9a9a9a", "#333333"
#: On the box (0, 2) x (0, 2).
MAP = 80


def map_points() -> Array:
    """(MAP^2, 2), rows after rows."""
    line = np.linspace(0.0, 2.0, MAP)
    return np.stack([side.ravel() for side in np.meshgrid(line, line)], axis=1)


def boats(rows: int = 70) -> tuple[list[tuple[Array, Array]], Array]:
    """Five boats that sail to and fro in their own waters, and where these are: (5, 2)."""
    centres = np.array([[0.45, 0.5], [0.5, 1.5], [1.05, 0.95], [1.6, 1.55], [1.55, 0.45]])
    time = np.linspace(0.0, 2.0 * np.pi, rows)
    places = [
        centre + 0.42 * np.stack([np.sin((1 + i % 2) * time + i), np.cos((7 - 2 * (i % 2)) * time + 2 * i)], axis=1)
        for i, centre in enumerate(centres)
    ]
    X = np.clip(np.concatenate(places), 0.0, 2.0)
    field = fg.synthetic_field(len(X), (0.55, 0.45, 1.0, 0.05), seed=11, inputs=X)
    return list(zip(np.split(field.inputs, 5), np.split(field.observations, 5), strict=True)), centres


def _edges(ax: Axes, graph: Topology, places: Array, **style: Any) -> None:
    for one, other in graph.union.edges.tolist():
        ax.plot(*places[[one, other]].T, **style)


def _bare(ax: Axes, title: str) -> None:
    ax.set(xticks=[], yticks=[], xlim=(0, 2), ylim=(0, 2), aspect="equal", title=title)


def fleet() -> Figure:
    """What each boat has, and what all of them end with."""
    shards, centres = boats()
    found = fg.Fleet(shards, graph="places", normalize=True, kernel="se")
    found.train()
    out = found.predict(map_points())
    figure = Figure(figsize=(WIDTH, 3.15), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _edges(left, found.graph, centres, color=DARK, linewidth=1.2, zorder=1)
    for (X, _), centre, (colour, mark) in zip(shards, centres, AGENTS, strict=True):
        left.scatter(*X.T, s=7, color=colour, marker=mark, zorder=2)
        left.scatter(*centre, s=90, color=colour, marker=mark, edgecolor="white", linewidth=1.2, zorder=3)
    _bare(left, "each boat keeps its rows")
    for ax, values, title, cmap in (
        (middle, out.mean, "all have this mean", "viridis"),
        (right, np.sqrt(out.variance), "and this standard deviation", "cividis"),
    ):
        image = ax.imshow(values.reshape(MAP, MAP), origin="lower", extent=(0, 2, 0, 2), cmap=cmap)
        _bare(ax, title)
        figure.colorbar(image, ax=ax, shrink=0.82, pad=0.02)
    return figure


def _row(ax: Axes, tree: Tree, graph: fg.Graph, places: Array, values: list[str], title: str, *, up: bool) -> None:
    _edges(ax, graph, places, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
    for agent, parent in enumerate(tree.parents.tolist()):
        if agent != tree.root:
            ends = (places[agent], places[parent]) if up else (places[parent], places[agent])
            style = {
                "arrowstyle": "-|>",
                "color": FIRST if up else SECOND,
                "linewidth": 1.6,
                "shrinkA": 11,
                "shrinkB": 11,
            }
            ax.annotate("", xy=ends[1], xytext=ends[0], arrowprops=style, zorder=2)
    for agent, (x, y) in enumerate(places):
        ring = DARK if agent == tree.root else GREY
        ax.scatter(x, y, s=330, color="white", edgecolor=ring, linewidth=1.8, zorder=3)
        ax.text(x, y, values[agent], ha="center", va="center", fontsize=9, zorder=4)
    ax.set(xticks=[], yticks=[], title=title, aspect="equal")
    ax.margins(0.12)
    ax.spines[:].set_visible(False)


def reduction() -> Figure:
    """Nine agents add up their numbers of rows: up the tree, and the total down."""
    places = np.array(
        [[0, 2], [1.1, 2.2], [2.3, 1.9], [0.2, 1], [1.2, 1.1], [2.2, 0.9], [0, 0], [1.1, 0.1], [2.3, -0.1]]
    )
    links = [(0, 1), (1, 2), (0, 3), (1, 4), (2, 5), (3, 4), (4, 5), (3, 6), (4, 7), (5, 8), (7, 8)]
    graph = fg.Graph(len(places), links)
    tree = Tree.of(graph)
    own = np.array([3, 5, 2, 4, 6, 1, 7, 2, 5])
    below = tree.sums_below(own)
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    _row(first, tree, graph, places, [str(n) for n in own], "what each agent has", up=True)
    for arrow in list(first.texts)[: len(places) - 1]:
        arrow.remove()
    _row(
        second,
        tree,
        graph,
        places,
        [str(n) for n in below],
        f"{tree.height} rounds up: its own and those below",
        up=True,
    )
    _row(third, tree, graph, places, [str(own.sum())] * len(own), f"{tree.height} rounds down: the total", up=False)
    return figure


def rounds() -> Figure:
    """Ten agents agree by dec-apx-gp, from the paper's start; dec-fact-gp beside it."""
    field = fg.synthetic_field(1500, seed=1)
    shards = fg.partition(field.inputs, field.observations, agents=10)
    admm = fg.Fleet(shards, graph="path", kernel="se", normalize=False).train("dec-apx-gp", theta0=fg.PAPER_THETA0)
    newton = fg.Fleet(shards, graph="path", kernel="se", normalize=False).train("dec-fact-gp", theta0=fg.PAPER_THETA0)
    figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
    panels = figure.subplots(1, 4)
    names = (r"$l_1$", r"$l_2$", r"$\sigma_f$", r"$\sigma_\epsilon$")
    for j, (ax, name) in enumerate(zip(panels, names, strict=True)):
        for agent in range(10):
            ax.plot(admm.history[:, agent, j], color=SECOND, linewidth=0.8, alpha=0.7)
        ax.axhline(newton.theta[j], color=FIRST, linestyle="--", linewidth=1.2)
        ax.set(title=name, xlabel="round", xlim=(0, admm.rounds), yscale="log")
        ax.set_xscale("symlog", linthresh=10)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("")
        low, high = admm.history[..., j].min(), admm.history[..., j].max()
        ax.set_yticks([round(t, 2) for t in np.geomspace(low, high, 3)])
    panels[0].plot([], [], color=SECOND, label="dec-apx-gp: every agent")
    panels[0].plot([], [], color=FIRST, linestyle="--", label="dec-fact-gp: where it ends")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def participants() -> Figure:
    """Which of 25 agents take part in three questions, by the threshold and with eta="auto"."""
    field = fg.synthetic_field(1500, (0.3, 0.3, 1.0, 0.3), seed=3)
    shards = fg.partition(field.inputs, field.observations, agents=25, by="kmeans", seed=0)
    found = fg.Fleet(shards, graph="places", theta=(0.3, 0.3, 1.0, 0.3), kernel="se", normalize=False)
    questions = np.array([[0.35, 0.62], [1.1, 1.12], [1.95, 1.95]])
    centres = np.array([X.mean(axis=0) for X, _ in shards])
    figure = Figure(figsize=(WIDTH, 5.9), layout="constrained")
    answers = {
        "eta=1e-3": found.predict(questions, "dec-nn-rbcm", eta=1e-3),
        'eta="auto"': found.predict(questions, "dec-nn-rbcm", eta="auto"),
    }
    for (shown, answer), axes in zip(answers.items(), figure.subplots(2, 3), strict=True):
        for ax, question, has_say in zip(axes, questions, answer.participants.T, strict=True):
            _edges(ax, found.graph, centres, color=GREY, linewidth=0.7, zorder=1)
            for (X, _), asked in zip(shards, has_say, strict=True):
                ax.scatter(*X.T, s=4, color=SECOND if asked else "#d9d9d9", zorder=2)
            ax.scatter(
                *centres.T, s=34, color=np.where(has_say, SECOND, "white"), edgecolor=DARK, linewidth=0.8, zorder=3
            )
            ax.scatter(*question, s=170, marker="*", color=FIRST, edgecolor="white", linewidth=0.9, zorder=4)
            _bare(ax, f"{shown}: {has_say.sum()} of 25 take part")
    return figure


def quickstart() -> Figure:
    """What the commands of the quickstart draw."""
    import pandas as pd

    field = fg.synthetic_field(600, seed=1)
    table = pd.DataFrame(field.inputs, columns=["lon", "lat"])
    table["sst"], table["boat"] = 15 + field.observations, pd.cut(field.inputs[:, 0], 5, labels=False)
    found = fg.Fleet(
        [(rows[["lon", "lat"]], rows["sst"]) for _, rows in table.groupby("boat")],
        graph="places",
        kernel="matern32",
        normalize=True,
    )
    found.train()
    out = found.predict(pd.DataFrame(map_points(), columns=["lon", "lat"]))
    figure = Figure(figsize=(WIDTH, 3.7), layout="constrained")
    for ax, values, label, cmap in zip(
        figure.subplots(1, 2),
        (out.mean, np.sqrt(out.variance)),
        ("sst", "standard deviation"),
        ("viridis", "cividis"),
        strict=True,
    ):
        image = ax.imshow(values.reshape(MAP, MAP), origin="lower", extent=(0, 2, 0, 2), cmap=cmap)
        ax.scatter(table["lon"], table["lat"], s=1.5, color="white", alpha=0.7)
        ax.set(xlabel="lon", ylabel="lat")
        figure.colorbar(image, ax=ax, label=label, shrink=0.85)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "fleet": fleet,
    "quickstart": quickstart,
    "reduction": reduction,
    "rounds": rounds,
    "participants": participants,
    "asking": answers.asking,
    "where-next": answers.where_next,
    "trust": answers.trust,
}


def main(names: list[str]) -> None:
    for name in names or FIGURES:
        with rc_context(STYLE):
            FIGURES[name]().savefig(FOLDER / f"{name}.png", dpi=160)
        print(f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
