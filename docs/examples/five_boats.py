"""Sea-surface temperature from five boats: from a table to a map, with land left out."""

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.figure import Figure
from numpy.typing import NDArray

import fleetgp as fg

rcParams.update({"font.size": 8, "axes.titlesize": 8.5})
BOATS = ("Ada", "Bo", "Cy", "Di", "Edda")


def shore(lon: NDArray[np.float64]) -> NDArray[np.float64]:
    """The latitude of the coast: the sea is north of it."""
    return 43.47 + 0.06 * np.sin(5.0 * lon) + 0.04 * np.cos(11.0 * lon)


def temperature(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> NDArray[np.float64]:
    """A front that meanders from west to east, a warm eddy north of it, cold water that wells up along the coast."""
    front = 43.80 + 0.08 * np.sin(6.0 * (lon + 4.0))
    eddy = np.exp(-(((lon + 3.15) / 0.14) ** 2) - ((lat - 44.03) / 0.08) ** 2)
    upwelling = np.exp(-(lat - shore(lon)) / 0.06)
    return np.asarray(16.0 - 1.2 * np.tanh((lat - front) / 0.05) + 1.1 * eddy - 1.5 * upwelling)


def logbooks(rows: int, seed: int = 4) -> pd.DataFrame:
    """What the boats write down on their way, to and fro in their own waters: lon, lat, sst, boat."""
    rng, parts = np.random.default_rng(seed), []
    for number, boat in enumerate(BOATS):
        way = np.linspace(0.0, 1.0, rows)
        lon = -4.0 + 0.24 * number + 0.22 * way + 0.01 * rng.standard_normal(rows)
        south = shore(lon) + 0.02
        lat = south + (44.2 - south) * (0.5 + 0.5 * np.cos(2.0 * np.pi * (1.5 * way + 0.3 * number)))
        sst = temperature(lon, lat) + 0.1 * rng.standard_normal(rows)
        parts.append(pd.DataFrame({"lon": lon, "lat": lat, "sst": sst, "boat": boat}))
    return pd.concat(parts, ignore_index=True)


def main(quick: bool = False) -> tuple[Figure, dict[str, float]]:
    table = logbooks(rows=30 if quick else 80)
    fleet = fg.Fleet.from_frame(
        table,
        graph="places",  # boats whose waters touch are neighbours
        inputs=["lon", "lat"],
        target="sst",
        agent="boat",
        units={"sst": "°C"},
        kernel="matern32",
        mean="constant",
        coordinates="kilometres",
    )
    fit = fleet.train()  # no row leaves a boat
    side = 25 if quick else 110
    sea = fleet.map((side, side), box=(-4.0, 43.4, -2.8, 44.2), mask=lambda at: at[:, 1] > shore(at[:, 0]), within=1.0)

    known = np.isfinite(sea["sst"].values)
    error = (sea["sst"].values - temperature(*np.meshgrid(sea["lon"], sea["lat"])))[known]
    inside = np.abs(error) < 1.96 * sea["sst_std"].values[known]

    figure = Figure(figsize=(9.0, 2.6), layout="constrained")
    first, *maps = figure.subplots(1, 3, sharex=True, sharey=True)
    fg.plot.field(fleet, ax=first).set_title("Rows, and who talks to whom")
    fg.plot.map(sea, axes=maps)
    first.set_xticks([-4.0, -3.6, -3.2, -2.8])
    return figure, {
        "length-scale along lon, km": fit.named["l_lon"],
        "noise of a thermometer, °C (0.1 in truth)": fit.named["sigma_eps"],
        "error of the map, °C (root mean square)": float(np.sqrt(np.mean(error**2))),
        "share of the map in its 95% intervals": float(inside.mean()),
        "kB sent by all boats to train": fit.ledger.bytes / 1e3,
        "rows sent to train": fit.ledger.total(kind="observations").scalars,
    }


if __name__ == "__main__":
    drawn, numbers = main()
    drawn.savefig("five_boats.png", dpi=150)
    print(*(f"{name}: {value:.3g}" for name, value in numbers.items()), sep="\n")
