"""`make examples`: run the examples at full size, and renew their figures and the numbers on their pages.

`python docs/examples/renew.py terrain vehicle` renews some of them.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from matplotlib import rc_context

FOLDER = Path(__file__).parent
NUMBERS = FOLDER / "numbers.json"
NAMES = (
    "five_boats",
    "rain_gauges",
    "terrain",
    "hospitals",
    "million",
    "vehicle",
    "all_methods",
    "losses",
)
#: Between these lines of a page stand its numbers.
BEGIN, END = "<!-- numbers: written by make examples -->", "<!-- end of numbers -->"


def run(name: str, **options: Any) -> tuple[Any, dict[str, float]]:
    """Figure and numbers of an example; matplotlib's settings are as they were after it."""
    found = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    example = importlib.util.module_from_spec(found)
    with rc_context():
        found.loader.exec_module(example)
        figure, numbers = example.main(**options)
        figure.canvas.draw()
    return figure, numbers


def told(value: float) -> str:
    """
    >>> told(0.12345), told(1e6), told(12.0), told(0.0), told(118.58)
    ('0.123', '1,000,000', '12', '0', '119')
    """
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def page(text: str, numbers: dict[str, float]) -> str:
    """The page with these numbers in the place of its own."""
    before, rest = text.split(BEGIN)
    rows = "".join(f"| {name} | {told(value)} |\n" for name, value in numbers.items())
    return f"{before}{BEGIN}\n\n| | |\n| --- | ---: |\n{rows}\n{END}{rest.split(END)[1]}"


def main(names: list[str]) -> None:
    known = json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.exists() else {}
    for name in names or NAMES:
        figure, known[name] = run(name)
        figure.savefig(FOLDER / f"{name}.png", dpi=150)
        file = FOLDER / f"{name}.md"
        file.write_text(page(file.read_text(encoding="utf-8"), known[name]), encoding="utf-8")
        print(name, *(f"  {what}: {told(value)}" for what, value in known[name].items()), sep="\n")
        text = json.dumps({each: known[each] for each in NAMES if each in known}, indent=2, ensure_ascii=False)
        NUMBERS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
