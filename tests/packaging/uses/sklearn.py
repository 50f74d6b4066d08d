"""The extra "sklearn": the estimator, in a pipeline."""

from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fleetgp as fg

field = fg.synthetic_field(150, seed=1)
model = make_pipeline(StandardScaler(), fg.FleetGPRegressor()).fit(field.inputs[:120], field.observations[:120])
assert model.score(field.inputs[120:], field.observations[120:]) > 0.5
