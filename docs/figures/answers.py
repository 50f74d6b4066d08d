"""The figures of the pages about asking, where to measure next, and trust; `draw.py` draws them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from panels import AGENTS, FIRST, SECOND, WIDTH

import fleetgp as fg
from fleetgp.arrays import Array

NAMES = ("Ada", "Bo", "Cy")


def boats(table: pd.DataFrame) -> fg.Fleet:
    """The fleet of the pages: three boats, by longitude."""
    named = table.assign(boat=pd.cut(table["lon"], 3, labels=NAMES).astype(str)).sort_values("boat")
    fleet = fg.Fleet.from_frame(
        named, inputs=["lon", "lat"], target="sst", agent="boat", graph="places", kernel="matern32", normalize=True
    )
    fleet.train()
    return fleet


def drawn(rows: int) -> pd.DataFrame:
    field = fg.synthetic_field(rows, seed=1)
    return pd.DataFrame({"lon": field.inputs[:, 0], "lat": field.inputs[:, 1], "sst": 15 + field.observations})


def asking() -> Figure:
    """Points by themselves, and together: intervals, draws, and where the maximum is."""
    table = drawn(300)
    fleet = boats(table[(table["lon"] < 0.75) | (table["lon"] > 1.25)])
    line = pd.DataFrame({"lon": np.linspace(0.1, 1.9, 90), "lat": 1.0})
    out, draws = fleet.predict(line), fleet.sample(line, n=400, seed=0)
    figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
    each, together, highest = figure.subplots(1, 3)
    for observed, shade, label in ((True, "#c9dff0", "a new observation"), (False, "#7db5db", "the field")):
        each.fill_between(line["lon"], *out.interval(0.95, observed=observed), color=shade, lw=0, label=label)
    each.plot(line["lon"], out.mean, color=SECOND, lw=1.4)
    each.set(title="each point: 95% intervals", xlabel="lon", ylabel="sst")
    each.legend(loc="lower center", frameon=False)
    together.plot(line["lon"], draws[:12].T, color=FIRST, lw=0.7, alpha=0.6)
    together.plot(line["lon"], out.mean, color=SECOND, lw=1.4)
    together.set(title="together: 12 possible fields", xlabel="lon", ylim=each.get_ylim())
    highest.hist(line["lon"].to_numpy()[draws.argmax(axis=1)], bins=30, range=(0.1, 1.9), color=FIRST)
    highest.set(title="where the maximum of 400 is", xlabel="lon", yticks=[], xlim=each.get_xlim())
    return figure


def _numbered(ax: Axes, plan: fg.Suggestion) -> None:
    for number, ((x, y), agent) in enumerate(zip(plan.places, plan.agents, strict=True), start=1):
        ax.scatter(x, y, s=150, color=AGENTS[agent][0], edgecolor="white", linewidth=1.2, zorder=4, clip_on=False)
        ax.text(x, y, str(number), color="white", ha="center", va="center", fontsize=8, zorder=5)


def where_next() -> Figure:
    """What three boats know, and where each should go, by both measures."""
    table = drawn(200)
    fleet = boats(table[(table["lon"] - 1.2) ** 2 + (table["lat"] - 1.2) ** 2 > 0.3])
    sides: Array = np.linspace(0, 2, 15)
    places = np.stack(np.meshgrid(sides, sides), axis=-1).reshape(-1, 2)
    near = [places[np.abs(places[:, 0] - X[:, 0].mean()) < 0.6] for X, _ in fleet.shards]
    known = fleet.map((80, 80), box=(0, 0, 2, 2), within=np.inf)
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    panels = figure.subplots(1, 2)
    for ax, by in zip(panels, ("variance", "mutual-information"), strict=True):
        image = ax.imshow(known["sst_std"], origin="lower", extent=(0, 2, 0, 2), cmap="Greys", vmin=0, vmax=0.8)
        for (X, _), (colour, mark) in zip(fleet.shards, AGENTS, strict=False):
            ax.scatter(*X.T, s=9, color=colour, marker=mark, linewidth=0)
        _numbered(ax, fleet.suggest(None, near, n=3, criterion=by))
        ax.set(title=f'criterion="{by}"', xlabel="lon", ylabel="lat", xlim=(-0.06, 2.06), ylim=(-0.06, 2.06))
    figure.colorbar(image, ax=panels, label="standard deviation of the field", shrink=0.85)
    return figure


def trust() -> Figure:
    """Ten agents all over the area, whose committee is too sure, before and after it is calibrated."""
    field = fg.synthetic_field(1600, (0.4, 0.3, 1.3, 0.05), seed=1)
    shards = fg.partition(field.inputs[:1000], field.observations[:1000], agents=10, by="random")
    fleet = fg.Fleet(shards, kernel="matern32", normalize=False)
    fleet.train()
    X, y = field.inputs[1000:], field.observations[1000:]
    before = fleet.predict(X, "dec-rbcm")
    fleet.calibrate("dec-rbcm")
    figure = Figure(figsize=(WIDTH, 0.5 * WIDTH), layout="constrained")
    for ax, title, out in zip(
        figure.subplots(1, 2), ("dec-rbcm", "calibrated"), (before, fleet.predict(X, "dec-rbcm")), strict=True
    ):
        fg.plot.reliability(out, y, ax=ax)
        ax.set_title(title)
    return figure
