"""How often a fleet takes a theta that fits for one that does not, and how soon it notices another field.

Three boats with 80 rows each in one field, on tracks whose rows are close to each other, go on for 120 rows each. After
every 20 the fleet looks whether theta still fits. Where the field changes, the new rows are in other water, so that
nothing but theta is different. python -m benchmarks.drift
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

import fleetgp as fg
from benchmarks.timing import Table
from fleetgp.kernels.expression import as_kernels
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.training.drift import Drift, judge, score

THETA = np.array([0.3, 0.3, 1.0, 0.3])
(KERNEL,) = as_kernels("matern32", 2)
AGENTS, OLD, NEW, BATCH = 3, 80, 120, 20
FAR = 10.0
#: What changes when the new rows begin, as factors of theta, and how many streams are drawn.
CHANGES: dict[str, tuple[tuple[float, ...], int]] = {
    "nothing": ((1.0, 1.0, 1.0, 1.0), 1000),
    "length-scales x 0.5": ((0.5, 0.5, 1.0, 1.0), 100),
    "length-scales x 2": ((2.0, 2.0, 1.0, 1.0), 100),
    "noise x 2": ((1.0, 1.0, 1.0, 2.0), 100),
    "noise x 1.5": ((1.0, 1.0, 1.0, 1.5), 100),
    "signal x 2": ((1.0, 1.0, 2.0, 1.0), 100),
}


def track(rng: np.random.Generator) -> np.ndarray:
    turns = np.cumsum(rng.normal(0.0, 0.4, OLD + NEW)) + rng.uniform(0.0, 6.0)
    return np.cumsum(0.03 * np.column_stack([np.cos(turns), np.sin(turns)]), axis=0) + rng.uniform(size=2)


def draw(rng: np.random.Generator, inputs: np.ndarray, theta: np.ndarray) -> np.ndarray:
    h = Hyperparameters.from_theta(theta)
    covariance = KERNEL(inputs, None, h) + h.noise**2 * np.eye(len(inputs))
    return np.linalg.cholesky(covariance) @ rng.standard_normal(len(inputs))


def stream(seed: int, factors: Sequence[float], trained: bool) -> int:
    """After how many new rows of each agent the fleet notices that theta does not fit; 0 for never."""
    rng = np.random.default_rng(seed)
    tracks = np.stack([track(rng) for _ in range(AGENTS)])
    values = draw(rng, tracks.reshape(-1, 2), THETA).reshape(AGENTS, -1)
    if set(factors) != {1.0}:
        tracks[:, OLD:] += FAR
        values[:, OLD:] = draw(rng, tracks[:, OLD:].reshape(-1, 2), THETA * factors).reshape(AGENTS, -1)
    theta = THETA
    if trained:
        rows = [(x[:OLD], y[:OLD]) for x, y in zip(tracks, values, strict=True)]
        theta = fg.Fleet(rows, normalize=False).train().theta
    parts = [Drift()] * AGENTS
    for start in range(OLD, OLD + NEW, BATCH):
        for i in range(AGENTS):
            data = Observations(tracks[i], values[i])
            new = data.rows(slice(start, start + BATCH))
            parts[i] = score(parts[i], data.rows(slice(start)), new, KERNEL, theta)
        if not judge(parts, AGENTS * (start + BATCH)).fits:
            return start + BATCH - OLD
    return 0


def drift() -> Table:
    table = Table("When a fleet trains again", "what changes", "theta", "streams", "noticed", "after rows per agent")
    with ProcessPoolExecutor(2) as pool:
        for trained in (False, True):
            for name, (factors, streams) in CHANGES.items():
                streams = 2 * streams // 5 if trained else streams
                work = partial(stream, factors=factors, trained=trained)
                ends = np.array(list(pool.map(work, range(streams), chunksize=5)))
                noticed = ends[ends > 0]
                after = f"{np.median(noticed):.0f} (median)" if len(noticed) else "-"
                table.add(name, "estimated" if trained else "true", streams, len(noticed), after)
    return table


if __name__ == "__main__":
    result = drift()
    for row in (result.columns, *result.rows):
        print(" | ".join(row))
