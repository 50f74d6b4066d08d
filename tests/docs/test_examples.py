"""The worked examples: each runs in small, draws its figure, and what its page claims is so."""

from __future__ import annotations

import json
import runpy
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "examples"
RENEW = runpy.run_path(str(FOLDER / "renew.py"))
NAMES: tuple[str, ...] = RENEW["NAMES"]
LONGEST, LARGEST = 80, 200_000  # lines of a script, bytes of a figure

pytestmark = pytest.mark.usefixtures("uncompiled")


def run(name: str, **options: Any) -> tuple[Any, dict[str, float]]:
    figure, numbers = RENEW["run"](name, quick=True, **options)
    assert len(figure.axes) >= 3
    return figure, numbers


def starting(numbers: dict[str, float], words: str) -> float:
    """The number whose name begins with these words."""
    (found,) = (value for name, value in numbers.items() if name.startswith(words))
    return found


def test_boats_map_the_sea_and_send_no_row() -> None:
    _, numbers = run("five_boats")
    assert starting(numbers, "error of the map") < 0.5  # the sea differs by 3 degrees
    assert 0.8 < starting(numbers, "share of the map") < 1.0
    assert starting(numbers, "rows sent") == 0


def test_services_together_are_nearly_as_good_as_pooled_and_send_no_reading() -> None:
    _, numbers = run("rain_gauges")
    alone = min(value for name, value in numbers.items() if name.endswith("alone, mm"))
    together, pooled = starting(numbers, "error, together"), starting(numbers, "error, if they could pool")
    assert together < 0.5 * alone
    assert together < 1.5 * pooled
    assert starting(numbers, "noise of the coast") < starting(numbers, "of the mountains")
    assert starting(numbers, "readings or places sent") == 0


def test_what_robots_call_safe_is_safe() -> None:
    _, numbers = run("terrain")
    assert 0.1 < starting(numbers, "share of the area called safe") < 0.9
    assert starting(numbers, "of these, share that is not") < 0.05


@pytest.mark.filterwarnings("ignore:the likelihood does not depend on l_clearance")  # of so few patients
def test_hospitals_are_better_together() -> None:
    _, numbers = run("hospitals")
    assert starting(numbers, "error together") < starting(numbers, "error of the best hospital alone")
    assert starting(numbers, "error together") < 0.85 * starting(numbers, "of the worst")


@pytest.mark.long
def test_more_rows_are_as_much_better_as_the_model_promises() -> None:
    _, numbers = run("million")
    assert 0.7 < starting(numbers, "error of the map") / starting(numbers, "what the model promises") < 1.4
    assert starting(numbers, "error of the map") < 0.6 * starting(numbers, "error from the fewest rows")
    assert starting(numbers, "rounds to ask") == 0


def test_a_vehicle_that_chooses_its_way_beats_a_lawn_mower() -> None:
    _, numbers = run("vehicle")
    assert starting(numbers, "error, own way") < 0.85 * starting(numbers, "error, lawn mower")


@pytest.mark.long
def test_every_method_without_a_server_is_its_twin_with_one() -> None:
    _, numbers = run("all_methods")
    errors = {name.removesuffix(": error"): value for name, value in numbers.items() if name.endswith(": error")}
    twins = {name: name.removeprefix("dec-") for name in errors if name.removeprefix("dec-") in errors}
    assert len(twins) >= 14
    for name, central in twins.items():
        assert errors[name] == pytest.approx(errors[central], rel=1e-5), name
    thetas = {name.split(":")[0]: value for name, value in numbers.items() if "theta" in name}
    assert thetas["dec-fact-gp"] == pytest.approx(thetas["fact-gp"], rel=0.01)


def free_run(length: int) -> int:
    """The first of so many ports in a row on which nobody listens, below those that the system gives away."""
    for first in range(20_000, 30_000, length):
        with ExitStack() as held:
            try:
                for port in range(first, first + length):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


@pytest.mark.long
def test_a_fleet_that_has_lost_a_member_says_so_and_takes_it_back() -> None:
    pytest.importorskip("zenoh")
    figure, numbers = run("losses", port=free_run(5))
    titles = [ax.get_title() for ax in figure.axes[:3]]
    assert titles == ["All boats", "Without boat2", "Without boat2, by dec-nn-rbcm"]
    # An answer just after a start may be by a model that some of them have trained: it is not the same to many digits.
    whole, back, lost, forgotten = (
        starting(numbers, f"mean standard deviation of the map, {when}, °C")
        for when in ("all boats", "boat2 is back", "without boat2", "without boat2, by dec-nn-rbcm")
    )
    assert max(whole, back) < lost < forgotten


@pytest.mark.parametrize("name", NAMES)
def test_scripts_are_short_and_pages_have_figure_code_and_the_numbers_of_the_last_run(name: str) -> None:
    script, page = ((FOLDER / f"{name}.{kind}").read_text(encoding="utf-8") for kind in ("py", "md"))
    assert len(script.splitlines()) <= LONGEST
    assert "from fleetgp" not in script  # public names alone
    assert f"({name}.png)" in page
    assert f"{{literalinclude}} {name}.py" in page
    assert 10_000 < (FOLDER / f"{name}.png").stat().st_size <= LARGEST
    numbers = json.loads((FOLDER / "numbers.json").read_text(encoding="utf-8"))[name]
    assert RENEW["page"](page, numbers) == page


def test_the_gallery_has_all_examples() -> None:
    gallery = (FOLDER / "index.md").read_text(encoding="utf-8")
    found = {path.stem for path in FOLDER.glob("*.md")} - {"index"}
    assert found == set(NAMES)
    assert [name for name in NAMES if f":link: {name}" not in gallery or f"{name}.png" not in gallery] == []
