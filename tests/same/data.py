"""The data of the configurations: closed formulas and seeded noise, rounded, so that every processor has the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Where fleets on [0, 2]^2 are asked: among the data, between agents, at data's edge, and beyond all data.
QUERIES = np.array([[0.3, 0.4], [0.81, 1.2], [1.2, 1.7], [1.6, 0.1], [1.99, 1.99], [6.0, -3.0]])
#: Of the paper's order: two length-scales, sigma_f, sigma_eps.
THETA, START = [0.9, 0.7, 1.2, 0.2], [1.5, 0.5, 1.0, 0.5]

Shard = tuple[Array, ...]


def rough(x: Array) -> Array:
    """A function of two inputs or more, on [0, 2]^2, between some -2 and 2."""
    first, second = x[:, 0], x[:, 1]
    value = np.sin(3.0 * first) + np.cos(4.0 * second) + 0.5 * np.sin(5.0 * first * second)
    return np.asarray(value + (0.3 * np.cos(x[:, 2]) if x.shape[1] > 2 else 0.0))


def stripes(x: Array, *columns: Array, agents: int) -> list[Shard]:
    """The rows of each agent: stripes along the first input, of equal or nearly equal sizes."""
    order = np.argsort(x[:, 0], kind="stable")
    return [(x[rows], *(column[rows] for column in columns)) for rows in np.array_split(order, agents)]


def rows_of(rows: int, seed: int, noise: float = 0.2, dimension: int = 2) -> tuple[Array, Array]:
    """Inputs, and observations with noise; a third input is a day from 0 to 6."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 2.0, (rows, 2)).round(6)
    if dimension > 2:
        x = np.column_stack([x, rng.integers(0, 7, rows).astype(float)])
    return x, (rough(x) + noise * rng.standard_normal(rows)).round(6)


def field(rows: int = 100, agents: int = 5, seed: int = 1, noise: float = 0.2, dimension: int = 2) -> list[Shard]:
    return stripes(*rows_of(rows, seed, noise, dimension), agents=agents)


def uneven(rows: int = 90, agents: int = 5) -> list[Shard]:
    """Agents with different numbers of rows, which overlap in space."""
    x, y = rows_of(rows, seed=2)
    ends = np.cumsum(np.arange(1, agents + 1) * rows // (agents * (agents + 1) // 2))[:-1]
    return list(zip(np.split(x, ends), np.split(y, ends), strict=True))


def with_level(shards: list[Shard], level: float, slopes: tuple[float, float] = (0.0, 0.0)) -> list[Shard]:
    """The same observations about a level, or a plane."""
    return [(x, (y + level + x[:, :2] @ np.array(slopes)).round(6), *rest) for x, y, *rest in shards]


def with_known_noise(shards: list[Shard]) -> list[Shard]:
    """(X_i, y_i, s_i), s_i from 0.05 to 0.45."""
    return [(x, y, (0.05 + 0.1 * (np.arange(len(y)) % 5)).round(6)) for x, y in shards]


def with_outliers(shards: list[Shard]) -> list[Shard]:
    """Every ninth row of agent 1 tells 6."""
    return [(x, np.where((np.arange(len(y)) % 9 == 4) & (k == 1), 6.0, y)) for k, (x, y) in enumerate(shards)]


def on_map(rows: int = 90, agents: int = 3, west: float = 10.0, south: float = 54.0) -> list[Shard]:
    """Longitudes and latitudes; beyond 180 degrees longitudes go on from -180."""
    x, y = rows_of(rows, seed=3)
    shards = stripes(x, y, agents=agents)
    moved = [np.column_stack([west + 0.3 * x[:, 0], south + 0.2 * x[:, 1]]).round(6) for x, _ in shards]
    return [
        (np.column_stack([(place[:, 0] + 180.0) % 360.0 - 180.0, place[:, 1]]).round(6), y)
        for place, (_, y) in zip(moved, shards, strict=True)
    ]


def on_globe(rows: int = 90, agents: int = 3) -> list[Shard]:
    rng = np.random.default_rng(4)
    lon, lat = rng.uniform(-180.0, 180.0, rows).round(4), np.degrees(np.arcsin(rng.uniform(-1.0, 1.0, rows))).round(4)
    y = (np.cos(np.radians(lat)) * np.sin(np.radians(2.0 * lon)) + 0.1 * rng.standard_normal(rows)).round(6)
    return stripes(np.column_stack([lon, lat]), y, agents=agents)


def two_targets(rows: int = 90, agents: int = 3) -> list[tuple[Array, Array]]:
    """(X_i, Y_i): the second target is observed in every third row."""
    x, y = rows_of(rows, seed=5)
    other = np.where(np.arange(rows) % 3 == 0, (0.5 * rough(x[:, ::-1]) + 30.0).round(6), np.nan)
    return [(x, both) for x, both in stripes(x, np.column_stack([y, other]), agents=agents)]


def frame(shards: list[Shard], **more: Any) -> Any:
    """All rows in one table, with the columns a, b, y and who, mixed."""
    import pandas as pd

    parts = [
        pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y, "who": f"agent {number}"})
        for number, (x, y, *_) in enumerate(shards)
    ]
    whole = pd.concat(parts, ignore_index=True).assign(**more)
    return whole.iloc[np.random.default_rng(0).permutation(len(whole))].reset_index(drop=True)


def grid_dataset() -> Any:
    """A map of a variable over lat and lon on two days, with cells that hold nothing."""
    import xarray as xr

    lon, lat = np.linspace(10.0, 11.0, 11).round(6), np.linspace(54.0, 54.5, 6).round(6)
    places = np.stack(np.meshgrid(lon - 10.0, 4.0 * (lat - 54.0)), -1).reshape(-1, 2)
    first = rough(places).reshape(len(lat), len(lon)).round(6)
    values = np.stack([first, (first + 0.1).round(6)])
    values[:, 1, 3:5] = np.nan
    days = np.array(["2021-01-01", "2021-01-02"], dtype="datetime64[ns]")
    names = ("time", "lat", "lon")
    return xr.Dataset({"sst": (names, values, {"units": "degC"})}, {"time": days, "lat": lat, "lon": lon})


#: Three agents: as they are, about a plane, with known noise, and with outliers.
PLAIN = field(90, 3)
TILTED = with_level(PLAIN, 8.0, (2.0, -1.0))
KNOWN_NOISE = with_known_noise(PLAIN)
STUCK = with_outliers(PLAIN)
