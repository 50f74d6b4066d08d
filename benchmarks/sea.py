"""Real sea-surface temperature with noise of our own, and cells that are held out. See ../shared/data/README.md."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
BOX, ATLANTIC, TEN_DAYS = (
    DATA / name
    for name in (
        "g1sst_gulfstream_paperbox_360x360.npz",
        "g1sst_nw_atlantic_1km.nc",
        "mur_v41_socal_20210101-10.nc",
    )
)
NOISE = 0.1  # K
QUERIES = 10_000
#: Squares of 30 cells of 1 km that nobody observes, and the day that nobody observes.
BLOCKS, SIDE, DAY = 40, 30, 4


@dataclass(frozen=True)
class Experiment:
    """Observations to learn from, inputs (N, D), and held-out ones by where they are: (T, D) and (T,)."""

    inputs: np.ndarray
    observations: np.ndarray
    held_out: dict[str, tuple[np.ndarray, np.ndarray]]


def present() -> bool:
    return all(path.exists() for path in (BOX, ATLANTIC, TEN_DAYS))


def experiment(name: str, size: int) -> Experiment:
    """atlantic, box or days, with so many observations; 0 for all that are not held out."""
    rng = np.random.default_rng(0)  # what is held out is the same for all sizes
    kelvin, lat, lon, days = field_of(name)
    where = np.stack(np.meshgrid(days, lat, lon, indexing="ij"), axis=-1)[..., ::-1]  # lon, lat, day
    known = np.isfinite(kelvin)
    parts = {"a day": _day(known)} if name == "days" else {"in blocks": _blocks(known, rng)}
    free = known & ~np.any(list(parts.values()), axis=0)
    order = rng.permutation(np.flatnonzero(free))
    held = {"at random": order[:QUERIES]}
    held |= {part: rng.permutation(np.flatnonzero(mask))[:QUERIES] for part, mask in parts.items()}
    chosen = order[QUERIES:] if size == 0 else order[QUERIES : QUERIES + size]
    observed = kelvin.reshape(-1) + NOISE * rng.standard_normal(kelvin.size)
    columns = 2 if len(days) == 1 else 3
    inputs = where.reshape(-1, 3)[:, :columns]
    return Experiment(inputs[chosen], observed[chosen], {part: (inputs[i], observed[i]) for part, i in held.items()})


def field_of(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Kelvin (day, lat, lon), NaN over land; degrees north, degrees east by the cosine of the middle, days."""
    if name == "box":
        with np.load(BOX) as file:
            kelvin, lat, lon = file["sst_kelvin"].astype(float)[None], file["lat"], file["lon"]
    else:
        import netCDF4

        with netCDF4.Dataset(ATLANTIC if name == "atlantic" else TEN_DAYS) as file:
            kelvin = np.ma.filled(file["analysed_sst"][:].astype(float), np.nan)
            lat, lon = (np.asarray(file[axis][:], dtype=float) for axis in ("lat", "lon"))
    kelvin = kelvin.reshape(-1, len(lat), len(lon))
    return kelvin, lat, lon * np.cos(np.deg2rad(lat.mean())), np.arange(len(kelvin), dtype=float)


def _blocks(known: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Squares around cells of the sea."""
    mask = np.zeros_like(known)
    sea = np.argwhere(known[0])
    for row, column in sea[rng.choice(len(sea), BLOCKS, replace=False)]:
        top, left = max(row - SIDE // 2, 0), max(column - SIDE // 2, 0)
        mask[0, top : top + SIDE, left : left + SIDE] = True
    return mask & known


def _day(known: np.ndarray) -> np.ndarray:
    mask = np.zeros_like(known)
    mask[DAY] = known[DAY]
    return mask
