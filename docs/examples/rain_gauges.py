"""Rain gauges of two services that may not pool their data: one map, and not one reading sent."""

import numpy as np
from matplotlib import rcParams
from matplotlib.figure import Figure
from numpy.typing import NDArray

import fleetgp as fg

rcParams["font.size"] = 8
SERVICES = ("coast", "mountains")


def places(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N, 3) with the altitude in km: a plain in the west, a ridge that bends, valleys behind it."""
    ridge = 1.8 * np.exp(-(((x - 62.0 - 10.0 * np.sin(y / 18.0)) / 13.0) ** 2))
    return np.column_stack([x, y, ridge + 0.004 * x + 0.15 * np.sin(x / 7.0) * np.cos(y / 9.0) + 0.2])


def rain(at: NDArray[np.float64]) -> NDArray[np.float64]:
    """mm in a day: wet wind from the west drops its rain on the slopes, and is dry behind the ridge."""
    x, y, altitude = at.T
    dry = 1.0 / (1.0 + np.exp((x - 68.0 - 10.0 * np.sin(y / 18.0)) / 5.0))
    cell = 12.0 * np.exp(-(((x - 30.0) / 14.0) ** 2) - ((y - 40.0) / 9.0) ** 2)  # a shower over the plain
    return np.asarray(4.0 + (10.0 + 14.0 * altitude) * dry + cell)


def gauges(count: int, seed: int = 3) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """(X, y) of each service. That of the mountains has fewer gauges, and worse ones."""
    rng, shards = np.random.default_rng(seed), []
    for (low, high), number, noise in (((0.0, 55.0), count, 0.8), ((45.0, 100.0), count * 2 // 3, 1.6)):
        X = places(rng.uniform(low, high, number), rng.uniform(0.0, 60.0, number))
        shards.append((X, rain(X) + noise * rng.standard_normal(number)))
    return shards


def main(quick: bool = False) -> tuple[Figure, dict[str, float]]:
    shards = gauges(90 if quick else 120)
    x, y = np.meshgrid(np.linspace(0, 100, 30 if quick else 90), np.linspace(0, 60, 20 if quick else 54))
    cells = places(x.ravel(), y.ravel())

    maps = {}
    for name, shard in zip(SERVICES, shards, strict=True):
        alone = fg.Fleet([shard], kernel="matern32", coordinates="scaled", normalize=True)
        alone.train()
        maps[f"{name} alone"] = alone.predict(cells)
    # Each service has a noise of its own.
    both = fg.Fleet(shards, kernel="matern32", coordinates="scaled", normalize=True, noise=SERVICES)
    fit = both.train("dec-fact-gp")  # tells likelihoods and their derivatives
    maps["together, no reading sent"] = out = both.predict(cells, "dec-nn-rbcm")  # tells beliefs at the cells
    maps["if they could pool"] = both.predict(cells, "full-gp")

    truth, numbers = rain(cells), {}
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for ax, (name, answer) in zip(axes.flat, maps.items(), strict=True):
        numbers[f"error, {name}, mm"] = fg.score(answer, truth, observed=False).rmse
        image = ax.pcolormesh(x, y, answer.mean.reshape(x.shape), vmin=2, vmax=40, cmap="viridis", rasterized=True)
        ax.contour(x, y, cells[:, 2].reshape(x.shape), levels=[1.0, 1.6], colors="white", linewidths=0.7)
        for service, (X, _), mark in zip(SERVICES, shards, "o^", strict=True):
            if service in name or "alone" not in name:
                ax.plot(
                    X[:, 0], X[:, 1], mark, color="black", markerfacecolor="white", markersize=3, markeredgewidth=0.5
                )
        ax.set(title=f"{name}: off by {numbers[f'error, {name}, mm']:.1f} mm".capitalize(), aspect="equal")
        ax.set(xlabel="x (km)", ylabel="y (km)")
        ax.label_outer()
    figure.colorbar(image, ax=axes, label="rain (mm in a day)", shrink=0.9)
    sent = {kind for ledger in (fit.ledger, out.ledger) for kind in ledger.kinds}
    numbers |= dict(
        zip(("noise of the coast's gauges, mm", "of the mountains', mm"), fit.theta[-2:].tolist(), strict=True)
    )
    numbers["readings or places sent"] = float(len(sent & {"observations", "inputs", "moments"}))
    return figure, numbers | {"share of the map in its 95% intervals": fg.score(out, truth, observed=False).coverage}


if __name__ == "__main__":
    drawn, found = main()
    drawn.savefig("rain_gauges.png", dpi=150)
    print(*(f"{name}: {value:.3g}" for name, value in found.items()), sep="\n")
