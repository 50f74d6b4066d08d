"""Every kind of model after a round trip: the same answers to the last bit, and what is in it in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.errors import InputError
from fleetgp.storage.folder import load_model, save_model, save_models
from fleetgp.storage.model import Model, contents, describe_coordinates, in_words
from fleetgp.storage.sections import VERSION
from tests.conftest import alternating_path, paper_shards

INPUTS = ("lon", "lat")
QUICK: dict[str, Any] = {"rounds": 2, "tol": 1e-1}
START = (1.2, 0.3, 1.3, 0.2)


def made(trained: Any = START, **settings: Any) -> fg.Fleet:
    """Trained a little, from some theta; or with it as it is."""
    shards = settings.pop("shards", paper_shards(60, 3))
    given = settings.pop("theta", None)
    fleet = fg.Fleet(shards, **{"kernel": "se", "normalize": False, "inputs": INPUTS, "theta": given, **settings})
    if given is None:
        fleet.train("dec-fact-gp", theta0=trained, **QUICK)
    return fleet


def calibrated() -> fg.Fleet:
    fleet = made(theta=START, shards=paper_shards(120, 3))
    fleet.calibrate("dec-rbcm", holdout="rows")
    return fleet


def grown() -> fg.Fleet:
    fleet = made()
    fleet.observe(1, [[1.0, 1.0]], [0.3])
    return fleet


def whole() -> fg.Fleet:
    fleet = fg.Fleet(paper_shards(60, 3), inputs=INPUTS, kernel="se", normalize=False)
    fleet.train("dec-full-gp", theta0=START, **QUICK)
    return fleet


def changed() -> fg.Fleet:
    fleet = made(normalize=True)
    assert fleet.theta is not None
    fleet.theta = 1.5 * fleet.theta  # after the training
    return fleet


def known() -> fg.Fleet:
    return made(shards=[(x, y, np.linspace(0.1, 0.4, len(y))) for x, y in paper_shards(60, 3)])


KINDS: dict[str, Callable[[], fg.Fleet]] = {
    "given": lambda: made(theta=START),
    "normalized": lambda: made(normalize=True),
    "changed": changed,
    "composite": lambda: made((1.2, 0.3, 1.3, 0.5, 0.2), kernel="matern32(lon) * se(lat) + linear(lon)"),
    "rq": lambda: made((1.2, 0.3, 1.5, 1.3, 0.2), kernel="rq"),
    "chosen": lambda: made(None, kernel=["se", "matern12"]),
    "constant mean": lambda: made(mean="constant"),
    "linear mean": lambda: made(mean="linear", coordinates="scaled"),
    "kilometres": lambda: made((130.0, 30.0, 1.3, 0.2), coordinates="kilometres"),
    "sphere": lambda: made((60.0, 1.3, 0.2), coordinates="sphere", kernel="iso-matern32(lon, lat)"),
    "noises": lambda: made((*START, 0.3, 0.4), noise="agents"),
    "shared noise": lambda: made((*START, 0.3), noise=["good", "cheap", "good"]),
    "known deviations": known,
    "robust": lambda: made(robust=True),
    "varying graph": lambda: made(graph=alternating_path(3)),
    "calibrated": calibrated,
    "grown": grown,
    "moments": whole,
}


@pytest.mark.filterwarnings("ignore::fleetgp.errors.FleetGPWarning")  # of trainings that end after two rounds
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_the_same_bits(kind: str, tmp_path: Path) -> None:
    fleet = KINDS[kind]()
    fleet.units = {"lon": "degrees_east", "sst": "degC"}
    model = Model(fleet, ("Ada", "Bo  B", "[Cy] ü"), INPUTS, "sst")
    folder = save_model(model, tmp_path / "Modell Süd")
    again = load_model(folder)
    queries = np.random.default_rng(0).uniform(0, 2, (9, 2))
    own = [] if fleet.moments is None else ["dec-full-gp"]
    for method in ("dec-summary", "dec-nn-grbcm", "dec-rbcm", "dec-nearest", "full-gp", *own):
        old, new = (one.fleet.predict(queries, method) for one in (model, again))
        assert np.array_equal(old.means, new.means), method
        assert np.array_equal(old.field_variances, new.field_variances), method
        assert np.array_equal(old.std_observed, new.std_observed), method
        assert np.array_equal(old.factors, new.factors), method
        assert old.ledger.as_dict() == new.ledger.as_dict(), method
    assert again.theta == model.theta
    assert repr(again) == repr(model)
    asked = [save_model(one, tmp_path / name) for name, one in (("model", model), ("again", again))]
    first, other = (json.loads((one / "model.json").read_text(encoding="utf-8")) for one in asked)
    first.pop("written_at")
    other.pop("written_at")
    if first.get("calibration"):  # what was sent to find it is not kept
        first["calibration"].pop("sent")
        other["calibration"].pop("sent")
    assert first == other
    facts = contents(again, folder)
    assert set(in_words(again)) == set(model.theta) == set(facts["theta"])
    assert facts["units"] == {"lon": "degrees_east", "sst": "degC"}
    json.dumps(facts)


@pytest.mark.filterwarnings("ignore::fleetgp.errors.FleetGPWarning")
def test_moments_of_fewer_rows_are_not_taken_for_those_of_all(tmp_path: Path) -> None:
    fleet = whole()
    fleet.observe(1, [[1.0, 1.0]], [5.0])
    assert fleet.moments is None
    again = load_model(save_model(Model(fleet, ("a", "b", "c"), INPUTS, "sst"), tmp_path / "m"))
    assert again.fleet.moments is None
    old, new = (one.predict([[1.0, 1.0], [0.3, 0.2]], "dec-full-gp") for one in (fleet, again.fleet))
    rows = [(x, y) for x, y in fleet.shards]
    other = fg.Fleet(rows, theta=fleet.theta, kernel="se", normalize=False).predict([[1.0, 1.0], [0.3, 0.2]], "full-gp")
    assert new.mean == pytest.approx(other.mean, rel=1e-7)  # by the dense formulas, from all rows
    assert new.std == pytest.approx(other.std, rel=1e-7)
    assert np.array_equal(old.mean, new.mean)


@pytest.mark.filterwarnings("ignore::fleetgp.errors.FleetGPWarning")
@pytest.mark.parametrize("asked", ["never", "between", "after", "elsewhere"])
def test_moments_and_later_rows_add_up_to_the_same_bits(asked: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    fleet, queries = whole(), rng.uniform(0.2, 1.8, (9, 2))
    for step in range(2):
        fleet.observe(1 + step, rng.uniform(0.3, 1.7, (7, 2)), rng.standard_normal(7))
        if asked == "after" or (asked == "between" and step == 0):
            fleet.predict(queries, "dec-full-gp")
    if asked == "elsewhere":
        fleet.predict(queries, "dec-full-gp", theta=1.1 * np.asarray(fleet.theta))
    model = Model(fleet, ("a", "b", "c"), INPUTS, "sst")
    again = load_model(save_model(model, tmp_path / "m"))
    twice = load_model(save_model(again, tmp_path / "n"))
    old, new, last = (one.fleet.predict(queries, "dec-full-gp") for one in (model, again, twice))
    for one in (new, last):
        assert np.array_equal(old.mean, one.mean)
        assert np.array_equal(old.variance, one.variance)


@pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")  # after so few rounds
def test_outputs_too(tmp_path: Path) -> None:
    shards = [(x, np.column_stack([y, 2.0 * y])) for x, y in paper_shards(40, 2)]
    sea = fg.Outputs(shards, targets=["Temperatur °C", "salinity"], inputs=INPUTS, kernel="se", normalize=False)
    sea.train("dec-fact-gp", theta0=(1.2, 0.3, 1.3, 0.2, 2.6, 0.4), **QUICK)
    models = [Model(fleet, ("a", "b"), INPUTS, target) for target, fleet in sea.fleets.items()]
    folder = save_models(models, tmp_path / "sea")
    for target, fleet in sea.fleets.items():
        again = load_model(folder / target).fleet
        old, new = (one.predict([[0.5, 0.5], [1.0, 1.5]]) for one in (fleet, again))
        assert np.array_equal(old.means, new.means)
        assert np.array_equal(old.field_variances, new.field_variances)


def test_hyperparameters_in_words() -> None:
    fleet = made(theta=(12.0, 30.0, 1.3, 0.1, 0.2, 0.3), coordinates="kilometres", noise="agents")
    fleet.units = {"sst": "degC"}
    told = in_words(Model(fleet, ("Ada", "Bo", "Cy ü"), INPUTS, "sst"))
    assert told["l_lon"] == "the field changes over about 12 km along lon"
    assert told["sigma_f"] == "sst varies by about 1.3 degC around its mean"
    assert list(told.values())[-1] == "an observation of Cy ü is off by about 0.3 degC"
    times = fg.Fleet([(np.array([[0.0, 18628.0], [1.0, 18629.0]]), np.zeros(2))], inputs=["depth", "day"],
                     kernel="se(depth) * periodic(day)", theta=(5.0, 1.0, 7.0, 1.0, 0.1), normalize=False)  # fmt: skip
    times.units = {"day": "days since 1970-01-01", "depth": "m"}
    words = in_words(Model(times, ("Ada",), ("depth", "day"), "chl"))
    assert words["l_depth"] == "the field changes over about 5 m along depth"
    assert words["period_day"] == "it repeats every 7 days along day"
    straight = made(theta=(1e7, 3000.0, 1.3, 0.1), coordinates="kilometres")
    bends = in_words(Model(straight, ("Ada", "Bo", "Cy"), INPUTS, "sst"))
    assert bends["l_lon"] == "no bend along lon: it is far beyond the data"
    assert bends["l_lat"].startswith("the field changes over about 3e+03 km")
    sphere = made(theta=(60.0, 1.3, 0.2), coordinates="sphere", kernel="iso-matern32(lon, lat)")
    round_world = in_words(Model(sphere, ("a", "b", "c"), INPUTS, "sst"))
    assert round_world["l"] == "the field changes over about 60 km in all directions"
    plain = {"coordinates": "as-given", "normalize": False, "mean": "zero", "deviations": False, "noise": None}
    assert describe_coordinates({**plain, "robust": False}) == ""
    assert describe_coordinates({**plain, "robust": True}) == "Outliers are weighed down."


@pytest.mark.parametrize(
    ("writer", "wanted"),
    [
        ("fleetgp 9.1.0", 'written by fleetgp 9.1.0: pip install "fleetgp>=9.1.0"'),
        ("x; rm -rf /", "pip install --upgrade fleetgp"),
        (None, "written by a newer one"),
    ],
)
def test_a_folder_of_a_newer_version_is_refused_with_advice(tmp_path: Path, writer: object, wanted: str) -> None:
    file = save_model(Model(made(theta=START), ("a", "b", "c"), INPUTS, "sst"), tmp_path / "m") / "model.json"
    facts = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(facts | {"version": VERSION + 1, "written_by": writer}), encoding="utf-8")
    with pytest.raises(
        InputError, match=f"expected a model in a format up to {VERSION}.*got format {VERSION + 1}"
    ) as said:
        load_model(tmp_path / "m")
    assert wanted in str(said.value)
    assert "rm -rf" not in str(said.value)
