"""The extra "data": tables and fields are read, and a model goes to its folder and back."""

import numpy as np
import pandas as pd
import xarray as xr

import fleetgp as fg

field = fg.synthetic_field(60, seed=1)
x, y = field.inputs.T
table = pd.DataFrame({"x": x, "y": y, "z": field.observations, "boat": np.repeat(["a", "b"], 30)})
table.to_csv("field.csv", index=False)
table.to_parquet("field.parquet")
named = {"inputs": ["x", "y"], "target": "z", "agent": "boat"}
for file in ("field.csv", "field.parquet"):
    read = fg.io.read_observations(file, **named)  # type: ignore[arg-type]
    np.testing.assert_allclose(read.observations, field.observations, rtol=1e-12)

grid = xr.Dataset({"z": (("y", "x"), np.arange(6.0).reshape(2, 3))}, {"y": [0.0, 1.0], "x": [0.0, 1.0, 2.0]})
grid.to_netcdf("grid.nc")
grid.to_zarr("grid.zarr", consolidated=False)
for file in ("field.csv", "field.parquet", "grid.nc", "grid.zarr"):
    streamed = fg.Fleet.from_files(file, inputs=["x", "y"], target="z", kernel="se", normalize=False)
    assert len(streamed.shards[0][1]) == (6 if file.startswith("grid") else 60), file

fleet = fg.Fleet(
    fg.partition(field.inputs, field.observations, agents=2), theta=[1.2, 0.3, 1.3, 0.1], kernel="se", normalize=False
)
fg.save_model(fg.Model(fleet, ("a", "b"), ("x", "y"), "z"), "model")
queries = [[0.5, 0.5]]
np.testing.assert_array_equal(fg.load_model("model").fleet.predict(queries).mean, fleet.predict(queries).mean)
