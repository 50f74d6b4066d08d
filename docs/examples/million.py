"""A million points on a laptop: the exact Gaussian process of all of them, at every agent."""

from time import perf_counter

import numpy as np
from matplotlib import rcParams
from matplotlib.figure import Figure

import fleetgp as fg

rcParams["font.size"] = 8
AGENTS = 20
#: Twenty ships sound a bay of 20 km x 20 km: a smooth depth, 1 m of noise in a sounding.
LENGTHS, SIGNAL, NOISE = (7.0, 4.0), 12.0, 1.0
BOX = (0.0, 20.0)


def main(quick: bool = False) -> tuple[Figure, dict[str, float]]:
    sizes = [1_000, 10_000] if quick else [1_000, 10_000, 100_000, 1_000_000]
    side = 40 if quick else 150
    line = np.linspace(*BOX, side)
    cells = np.column_stack([axis.ravel() for axis in np.meshgrid(line, line)])
    theta = (*LENGTHS, SIGNAL, NOISE)
    truth = fg.synthetic_field(1, theta, seed=5, box=BOX, inputs=cells).truth  # the same field, on the map

    errors, deviations, seconds = [], [], []
    for size in sizes:
        bay = fg.synthetic_field(size, theta, seed=5, box=BOX)
        ships = fg.partition(bay.inputs, bay.observations, agents=AGENTS)
        began = perf_counter()
        fleet = fg.Fleet(ships, "grid", kernel="se", inputs=["x", "y"], normalize=False)
        fleet.units, fleet.target = {"x": "km", "y": "km", "depth": "m"}, "depth"
        fit = fleet.train("dec-full-gp")  # sums over the rows go along a tree; then everybody has the whole model
        bottom = fleet.map((side, side), box=(0, 0, 20, 20), method="dec-full-gp")  # by every ship alone
        seconds.append(perf_counter() - began)
        errors.append(float(np.sqrt(np.mean((bottom["depth"].values.ravel() - truth) ** 2))))
        deviations.append(float(np.sqrt(np.mean(bottom["depth_std"].values ** 2))))

    figure = Figure(figsize=(9.0, 2.8), layout="constrained")
    *maps, third = figure.subplots(1, 3)
    fg.plot.map(bottom, axes=maps)
    maps[0].set_title(f"Depth, from {sizes[-1]:,} soundings")
    maps[1].set_title("Its standard deviation")
    third.loglog(sizes, errors, "o-", color="#0072B2", label="error (m)")
    third.loglog(sizes, deviations, "s--", color="#56B4E9", label="promised (m)")
    third.loglog(sizes, seconds, "^:", color="#D55E00", label="time (s)")
    third.set(xlabel="soundings", title="What more rows bring")
    third.grid(alpha=0.3, linewidth=0.4)
    third.legend(frameon=False, fontsize=7, loc="lower left")
    return figure, {
        "rows": float(sizes[-1]),
        "seconds to train and map": seconds[-1],
        "error of the map, m": errors[-1],
        "what the model promises, m": deviations[-1],
        "error from the fewest rows, m": errors[0],
        "noise of a sounding, m (1 in truth)": float(fit.theta[-1]),
        "MB sent by all ships": fit.ledger.bytes / 1e6,
        "MB of the rows themselves": 24.0 * sizes[-1] / 1e6,
        "rounds to ask": float(fleet.predict(cells[:9], "dec-full-gp").ledger.rounds),
    }


if __name__ == "__main__":
    drawn, numbers = main()
    drawn.savefig("million.png", dpi=150)
    print(*(f"{name}: {value:.3g}" for name, value in numbers.items()), sep="\n")
