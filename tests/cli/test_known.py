"""--bound, --prior and --fix: into the training, the report and the model; errors point at what is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fleetgp.storage.folder import load_model
from tests.cli.commands import FIT, run, said


def test_they_reach_the_training_and_are_told(folder: Path) -> None:
    given = ["--bound", "l_lon=0.1:0.3", "sigma_f=:50", "--prior", "noise=0.2:1.5", "--fix", "l_lat=2"]
    found = run("fit", "observations.csv", *FIT, *given, "--tol", "1e-3", "--out", "m", "--quiet", "--json")
    facts = json.loads(found.stdout)
    assert facts["at_bounds"] == ["l_lon"]
    assert facts["bounds"] == {"l_lon": [0.1, 0.3], "sigma_f": [None, 50.0]}
    assert (facts["priors"], facts["fixed"]) == ({"sigma_eps": [0.2, 1.5]}, {"l_lat": 2.0})
    assert facts["theta"]["l_lon"] == pytest.approx(0.3)
    assert facts["theta"]["l_lat"] == pytest.approx(2.0)
    assert "l_lon stands at its upper bound, 0.3" in said(found)
    fit = load_model("m").fleet.last_fit
    assert fit is not None
    assert (fit.at_bounds, fit.known.upper[0]) == (("l_lon",), 0.3)
    assert fit.penalty == pytest.approx(facts["penalty"])
    table = run("fit", "observations.csv", *FIT, *given, "--tol", "1e-3", "--out", "n", "--quiet").stdout.splitlines()
    assert [line.partition("(")[2].partition(")")[0] for line in table if line.startswith("l_")] == [
        "at its bound",
        "fixed",
    ]


@pytest.mark.parametrize(
    ("given", "message", "caret"),
    [
        (["--bound", "l_lom=1:2"], "--bound: unknown name 'l_lom': choose one of l_lon, l_lat, sigma_f, sigma_eps,", 0),
        (["--bound", "l_lon=1:2x"], "--bound: expected a number, got '2x'", 8),
        (["--bound", "l_lon=1"], "--bound: expected lowest:highest, and there is no :", 7),
        (["--bound", "l_lon=2:1"], "--bound: l_lon: expected the lowest value first, got 2 and 1", 6),
        (["--prior", "noise=1:0.5"], "--prior: expected a factor above 1, got 0.5", 8),
        (["--prior", "noise=:2"], "--prior: expected a number, got ''", 6),
        (["--fix", "noise"], "--fix: expected name=value, and there is no =", 5),
        (["--fix", "noise=nan"], "--fix: expected a number above 0, got nan", 6),
        (["--fix", "noise=1", "noise=2"], "--fix: noise was given before", 0),
        (["--fix", "noise=1", "sigma_eps=2"], "--fix: noise and sigma_eps are the same hyperparameter", 10),
    ],
)
def test_an_error_points_at_the_character(folder: Path, given: list[str], message: str, caret: int) -> None:
    found = run("fit", "observations.csv", *FIT, *given, "--out", "m", code=2)
    line, text, below = found.stderr.splitlines()[-3:]
    assert line.startswith(f"error: {message}")
    assert text == f"  {given[-1]}"
    assert below == " " * (2 + caret) + "^"
    assert not Path("m").exists()


def test_what_does_not_fit_together_is_one_error(folder: Path) -> None:
    found = run("fit", "observations.csv", *FIT, "--bound", "noise=1:2", "--fix", "noise=3", "--out", "m", code=2)
    assert "error: --fix: sigma_eps = 3 is outside of its bounds, 1 to 2: leave one of them out" in said(found)


def test_every_hyperparameter_of_a_composed_kernel_is_reported_with_its_unit_and_in_words(folder: Path) -> None:
    kernel = ["--kernel", "rq(lon, lat) + linear(lat)", "--rounds", "1"]
    lines = run("fit", "observations.csv", *FIT, *kernel, "--out", "m", "--quiet").stdout.splitlines()
    table = " ".join(" ".join(lines).split()).partition("hyperparameter value in words ")[2]
    number = r"[\d.e+-]+"
    rows = [
        f"l_lon {number} degrees the field changes over about {number} degrees along lon",
        f"l_lat {number} degrees the field changes over about {number} degrees along lat",
        f"alpha {number} length-scales are mixed: the smaller this number, the more of them",
        f"sigma_f1 {number} sst varies by about {number} around its mean by term 1 of the kernel",
        f"sigma_f2 {number} sst varies by about {number} around its mean by term 2 of the kernel",
        f"sigma_eps {number} an observation is off by about {number}",
    ]
    assert re.match(" ".join(rows), table)


def test_auto_is_a_word_of_its_own(folder: Path) -> None:
    for kernel, caret in (("Auto", 0), ("se * auto", 5)):
        found = run("fit", "observations.csv", *FIT, "--kernel", kernel, "--out", "m", code=2)
        line, _, below = found.stderr.splitlines()[-3:]
        assert (line, below) == (
            'error: kernel: expected "auto" alone, and in small letters, or a kernel',
            " " * (2 + caret) + "^",
        )
