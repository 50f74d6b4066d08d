"""Without any extra: a fleet trains and predicts, with NumPy and SciPy alone; what needs an extra says which."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import fleetgp as fg

# The environment is clean: these are installed where the tests run.
assert [name for name in ("pytest", "pandas", "sklearn", "numba", "ray", "typer", "zenoh") if find_spec(name)] == []

field = fg.synthetic_field(90, seed=1)
shards = fg.partition(field.inputs, field.observations, agents=3)
fit = fg.Fleet(shards, graph="path", kernel="se", normalize=False).train("dec-fact-gp", theta0=[2, 0.5, 1, 1])
assert fit.status == "converged"

# One agent is the exact GP: against the formula.
queries = np.array([[0.5, 0.5], [1.5, 0.2]])
lengths, signal, noise = fit.theta[:2], fit.theta[2], fit.theta[3]


def covariance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(signal**2 * np.exp(-(((a[:, None] - b[None]) / lengths) ** 2).sum(axis=-1)))


own = covariance(field.inputs, field.inputs) + noise**2 * np.eye(len(field.inputs))
expected = covariance(queries, field.inputs) @ np.linalg.solve(own, field.observations)
one = fg.Fleet([(field.inputs, field.observations)], theta=fit.theta, kernel="se", normalize=False)
np.testing.assert_allclose(one.predict(queries, "dec-poe").mean, expected, rtol=1e-6, atol=1e-8)

Path("field.csv").write_text("x,y,z\n1,2,3\n2,3,4\n", encoding="utf-8")
Path("field.parquet").write_bytes(b"")
Path("field.nc").write_bytes(b"")
REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("sklearn", lambda: fg.FleetGPRegressor),
    ("cluster", lambda: fg.Fleet(shards, backend="ray", kernel="se", normalize=False)),
    ("data", lambda: fg.Fleet.from_files("field.csv", inputs=["x", "y"], target="z", kernel="se", normalize=False)),
    ("data", lambda: fg.io.read_observations("field.csv", inputs=["x", "y"], target="z")),
    ("data", lambda: fg.io.read_observations("field.parquet", inputs=["x", "y"], target="z")),
    ("data", lambda: fg.io.load_sst("field.nc")),
    ("data", lambda: fg.save_model(fg.Model(one, ("boat",), ("x", "y"), "z"), "model")),
]
for extra, call in REFUSED:
    try:
        call()
    except fg.InputError as error:
        told = str(error)
    assert f'"{extra}"' in told or f"[{extra}]" in told, told
    assert "\n" not in told, told
assert not Path("model").exists(), "nothing half-written"
