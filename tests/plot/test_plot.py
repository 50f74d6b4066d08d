"""Figures: what is drawn are the numbers, and nothing of pyplot is touched."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib import rcParams
from matplotlib.colors import LogNorm, to_rgba
from matplotlib.figure import Figure
from scipy.stats import beta

import fleetgp as fg
from fleetgp.errors import InputError
from fleetgp.metrics import coverage
from fleetgp.network import Ledger
from fleetgp.plot.charts import LEVELS, band
from fleetgp.plot.style import COLOURS, agent_colours
from fleetgp.training.fit import Compared
from tests.conftest import alternating_path, paper_shards

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

THETA = fg.PAPER_THETA


def small(**settings: Any) -> fg.Fleet:
    fleet = fg.Fleet(
        paper_shards(120, 3),
        **{"kernel": "se", "normalize": False, "theta": THETA, "inputs": ["lon", "lat"], **settings},
    )
    fleet.set_metadata(["Ada", "Bo", "Cy"], "sst", {"sst": "degC"})
    return fleet


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """No figure is left in pyplot, and no setting is changed."""
    before = dict(rcParams)
    yield
    assert plt.get_fignums() == []
    assert dict(rcParams) == before


def drawn(ax: Any) -> Any:
    """Everything can be printed without a warning."""
    ax.figure.canvas.draw()
    return ax


def test_the_field_shows_every_observation_and_every_link() -> None:
    fleet = small(graph="star")
    ax = drawn(fg.plot.field(fleet))
    *dots, links, centres = ax.collections
    for (x, _), shown, colour in zip(fleet.shards, dots, agent_colours(3), strict=True):
        assert np.array_equal(shown.get_offsets(), x)
        assert to_rgba(colour)[:3] == tuple(shown.get_facecolor()[0][:3])
    means = np.array([x.mean(axis=0) for x, _ in fleet.shards])
    assert np.allclose(centres.get_offsets(), means)
    assert np.allclose(links.get_segments(), means[fleet.graph.union.edges])
    assert [text.get_text() for text in ax.texts] == ["Ada", "Bo", "Cy"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("lon (°E)", "lat (°N)")
    assert ax.get_aspect() == pytest.approx(1.0 / np.cos(np.radians(1.0)), rel=1e-3), "as on the ground"


def test_the_field_of_many_and_of_graphs_that_vary() -> None:
    shards = [(x, y) for x, y in paper_shards(12_000, 6)]
    fleet = fg.Fleet(shards, alternating_path(6), theta=THETA, kernel="se", normalize=False)
    ax = fg.plot.field(fleet, along=(1, 0), names=False)
    *dots, links, _ = ax.collections
    assert sum(len(one.get_offsets()) for one in dots) <= 5000
    assert len(links.get_segments()) == 5
    assert ax.get_xlabel() == "x2"
    assert len(ax.texts) == 0


@pytest.mark.parametrize("std", ["std", "std_observed"])
def test_a_map_has_the_numbers_of_the_prediction(std: str) -> None:
    fleet = small()
    low, high = (end(np.concatenate([x for x, _ in fleet.shards]), axis=0) for end in (np.min, np.max))
    axes = [np.linspace(a, b, n) for a, b, n in zip(low, high, (6, 5), strict=True)]
    told = fleet.predict(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2), "dec-rbcm")
    for what in (told, fleet.map((6, 5), within=np.inf, method="dec-rbcm")):
        mean, deviation = fg.plot.map(what, std=std)
        assert np.allclose(drawn(mean).collections[0].get_array(), told.mean.reshape(6, 5).T)
        assert np.allclose(deviation.collections[0].get_array(), getattr(told, std).reshape(6, 5).T)
    assert mean.child_axes[0].get_ylabel() == "sst (degC)"


def test_a_fleet_is_asked_for_its_map_and_what_nobody_knows_is_hatched() -> None:
    fleet = small()
    asked: dict[str, Any] = {"grid": (30, 8), "box": (0.0, 0.0, 30.0, 2.0), "within": np.inf, "method": "dec-rbcm"}
    with pytest.warns(fg.FleetGPWarning, match="no better known than the prior"):
        mean, deviation = fg.plot.map(fleet, **asked)
    (image,) = mean.collections
    assert 0 < np.ma.getmaskarray(image.get_array()).sum() < 240
    assert mean.patch.get_hatch() == "////"
    x, y = mean.lines[0].get_data()
    assert np.array_equal(np.column_stack([x, y]), np.concatenate([x for x, _ in fleet.shards]))
    assert deviation.get_title() == "Standard deviation"


def test_deviations_that_differ_much_have_a_logarithmic_scale() -> None:
    data = small().map((4, 3), within=np.inf, method="dec-rbcm")
    for values, logarithmic in ((np.linspace(1.0, 9.0, 12), False), (np.linspace(1.0, 11.0, 12), True)):
        data["sst_std"].values[:] = values.reshape(3, 4)
        _, deviation = fg.plot.map(data)
        assert isinstance(deviation.collections[0].norm, LogNorm) == logarithmic


def test_convergence_draws_the_history() -> None:
    fleet = small(theta=None)
    fit = fleet.train("dec-apx-gp", theta0=(2, 0.5, 1, 1), rounds=15, tol=0.0)
    panels = fg.plot.convergence(fleet)
    lengths = [rf"$\ell_{{\mathrm{{{name}}}}}$" for name in ("lon", "lat")]
    assert [ax.get_title() for ax in panels] == [*lengths, r"$\sigma_f$", r"$\sigma_\epsilon$"]
    for j, ax in enumerate(panels):
        assert np.array_equal([line.get_ydata() for line in ax.lines], fit.history[:, :, j].T)
        assert np.array_equal(ax.lines[0].get_xdata(), np.arange(16))
    assert [text.get_text() for text in panels[0].get_legend().get_texts()] == ["Ada", "Bo", "Cy"]
    drawn(panels[0])
    own = Figure().subplots(1, 4)
    assert fg.plot.convergence(fit, axes=own)[2] is own[2]


def test_kernels_are_drawn_by_their_density_and_failures_are_told() -> None:
    fit = small(theta=None).train("dec-fact-gp", theta0=THETA, rounds=2, tol=1e-1)
    rows = (("se", -0.5), ("matern32", 0.75), ("matern12", -np.inf))
    compared = tuple(Compared(kernel, density, 40, (1.0,)) for kernel, density in rows)
    ax = drawn(fg.plot.kernels(replace(fit, compared=compared, kernel="matern32")))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["matern12", "matern32", "se"]
    points = [line for line in ax.lines if line.get_marker() == "o"]
    assert [line.get_xydata().tolist() for line in points] == [[[0.75, 1.0]], [[-0.5, 2.0]]]
    assert {text.get_text().strip() for text in ax.texts} == {"failed", "0.750 (chosen)", "-0.500"}


def test_traffic_is_that_of_the_ledger() -> None:
    fleet = small(graph="path")
    ledger = fleet.predict([[0.5, 0.5], [1.5, 0.5]], "dec-rbcm").ledger
    links, kinds = fg.plot.traffic(ledger, fleet)
    drawn(links)
    sizes = dict.fromkeys(((0, 1), (1, 2)), 0)
    for (sender, receiver), sent in ledger.by_edge().items():
        sizes[min(sender, receiver), max(sender, receiver)] += sent.bytes
    widths = sorted(line.get_linewidth() for line in links.lines)
    assert widths == pytest.approx(sorted(5.0 * size / max(sizes.values()) for size in sizes.values()))
    bars = [bar.get_width() for bar in kinds.patches]
    assert sum(bars) == ledger.bytes
    assert bars == sorted(sent.bytes for sent in ledger.by_kind().values() if sent.bytes)


def test_traffic_of_one_kind_over_a_server_and_on_a_circle() -> None:
    ledger = small().predict([[0.5, 0.5]], "rbcm").ledger
    own = Figure().subplots()
    ax = drawn(fg.plot.traffic(ledger, fg.Graph.path(3), kind="predictions", ax=own))
    assert ax is own
    assert len(ax.lines) == 3
    assert "server" in [text.get_text() for text in ax.texts]
    middle = np.mean([np.asarray(line.get_xydata())[0] for line in ax.lines], axis=0)
    assert middle == pytest.approx([0.0, 0.0], abs=1e-12)


def test_reliability_draws_coverages_and_the_band_of_chance(rng: np.random.Generator) -> None:
    truth = rng.standard_normal(200)
    pairs = {"right": (np.zeros(200), np.ones(200)), "sure": (np.zeros(200), np.full(200, 0.1))}
    ax = drawn(fg.plot.reliability(pairs, truth))
    for line, pair in zip(ax.lines[1:], pairs.values(), strict=True):
        expected = [coverage(*pair, truth, float(level)) for level in LEVELS]
        assert np.array_equal(line.get_ydata(), expected)
    low, high = band(200)
    # The ends of a binomial interval, by the incomplete beta function: P(K <= k) = I_(1-p)(n - k, k + 1).
    for level, a, b in zip(LEVELS, np.rint(200 * low), np.rint(200 * high), strict=True):
        assert beta.cdf(1.0 - level, 200 - a, a + 1) >= 0.025 > (beta.cdf(1.0 - level, 200 - a + 1, a) if a else 0.0)
        assert b == 200 or beta.cdf(1.0 - level, 200 - b, b + 1) >= 0.975
    found = small().cross_validate(2, method="dec-rbcm", train=False)
    whole = fg.plot.reliability(found).lines[1].get_ydata()
    assert whole[18] == pytest.approx(found.scores.coverage)


BAD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "ax": (lambda f: fg.plot.field(f, ax=3), "ax: expected the axes of a matplotlib figure, got int"),
    "axes": (lambda f: fg.plot.map(f, axes=[1], grid=(3, 3)), "axes: expected 2 axes of a matplotlib figure, got 1"),
    "along": (lambda f: fg.plot.field(f, along=(0, 2)), r"along: expected the numbers of two inputs, from 0 to 1"),
    "one input": (
        lambda _: fg.plot.field(fg.Fleet([([[0.0], [1.0]], [0.0, 1.0])], kernel="se", normalize=False)),
        "two inputs or more, got one",
    ),
    "std": (lambda f: fg.plot.map(f, std="sigma"), "unknown std 'sigma': choose one of std, std_observed"),
    "no map": (lambda _: fg.plot.map(np.zeros((3, 3))), "expected a fleet, a prediction on a grid, or a map"),
    "options": (lambda f: fg.plot.map(f.predict([[0.0, 0.0]]), grid=(3, 3)), "grid: expected options of a map"),
    "untrained": (lambda f: fg.plot.convergence(f), "expected a trained fleet, got one that was not trained"),
    "no fit": (lambda f: fg.plot.convergence(f.agents), r"expected a training \(Fit\) or a trained fleet, got int"),
    "kind": (
        lambda f: fg.plot.traffic(f.predict([[0.5, 0.5]], "dec-rbcm").ledger, f, kind="moments"),
        "unknown kind of content in this ledger 'moments'",
    ),
    "places": (lambda _: fg.plot.traffic(Ledger([0], [1]), np.zeros(3)), r"a graph or places \(M, 2\), got the shape"),
    "few places": (
        lambda f: fg.plot.traffic(f.predict([[0.5, 0.5]], "dec-rbcm").ledger, np.zeros((2, 2))),
        "expected the places of all agents, got 2, and agent 2 sends",
    ),
    "truth": (lambda f: fg.plot.reliability(f.predict([[0.5, 0.5]])), "expected the truth beside a prediction"),
    "nothing": (lambda _: fg.plot.reliability({}, [1.0]), "expected predictions, got an empty dictionary"),
    "reliability": (lambda _: fg.plot.reliability(3, [1.0]), "expected a CrossValidation, a Prediction or a pair"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_calls_are_one_clear_error(name: str) -> None:
    call, told = BAD[name]
    with pytest.raises(InputError, match=told):
        call(small())


def test_a_training_of_one_kernel_has_nothing_to_compare() -> None:
    fit = small(theta=None).train("dec-fact-gp", theta0=THETA, rounds=1, tol=1e-1)
    with pytest.raises(InputError, match=r'expected a training that compared some.*kernel="auto"'):
        fg.plot.kernels(fit)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r'pip install "fleetgp\[cli\]"'):
        fg.plot.field(small())


def test_few_agents_have_colours_that_stay_apart() -> None:
    assert agent_colours(7) == list(COLOURS)
    assert len({tuple(colour) for colour in agent_colours(30)}) == 30


@pytest.mark.parametrize("box", [(-73.0, 36.4, -69.4, 40.0), (-72.02, 36.4, -72.0, 36.5), (-75.0, 30.0, -60.0, 33.0)])
def test_ticks_of_a_map_do_not_overlap_and_a_degree_is_as_long_as_on_the_ground(
    box: tuple[float, float, float, float],
) -> None:
    west, south, east, north = box
    places = np.random.default_rng(0).uniform((west, south), (east, north), (20, 2))
    theta = [east - west, north - south, 1.0, 0.1]
    shards = [(places, places[:, 0] - west)]
    found = fg.Fleet(shards, theta=theta, inputs=["lon", "lat"], kernel="matern32", normalize=True)
    axes = fg.plot.map(found, grid=(4, 4))
    figure = axes[0].figure
    figure.canvas.draw()
    for ax in axes:
        for axis, labels in ((0, ax.get_xticklabels()), (1, ax.get_yticklabels())):
            ends = sorted(one.get_window_extent().get_points()[:, axis].tolist() for one in labels if one.get_text())
            assert all(one[1] < other[0] for one, other in pairwise(ends))
        (west, east), (south, north) = ax.get_xlim(), ax.get_ylim()
        panel = ax.get_position().transformed(figure.transFigure)  # as drawn, with its aspect
        ratio = (panel.width / (east - west)) / (panel.height / (north - south))
        assert ratio == pytest.approx(np.cos(np.radians(0.5 * (south + north))), rel=1e-3)
