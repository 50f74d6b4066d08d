"""A fleet that loses a member: five processes, one is killed, the others answer and say so, and it comes back."""

import json
import sys
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.figure import Figure

import fleetgp as fg

rcParams["font.size"] = 8
LOST = "boat2"
#: Each boat has a copy of this file. In a circle any one can be lost, and the others still reach each other.
HEAD = 'name = "bay"\ninputs = ["x", "y"]\ntarget = "temperature"\nkernel = "se"\nnormalize = true\n'
AGENT = '[[agent]]\nname = "{}"\nendpoint = "tcp/127.0.0.1:{}"\ndata = "{}.csv"\nneighbours = ["{}"]\n'


def write(folder: Path, boats: list[str], rows: int, line: Any, port: int) -> None:
    """The description, a table for each boat, and the points that are asked for."""
    field = fg.synthetic_field(rows, (0.4, 0.4, 2.0, 0.2), seed=8)
    for name, (X, y) in zip(boats, fg.partition(field.inputs, field.observations, agents=len(boats)), strict=True):
        pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "temperature": 14.0 + y}).to_csv(folder / f"{name}.csv", index=False)
    agents = (AGENT.format(name, port + k, name, boats[k - 1]) for k, name in enumerate(boats))
    (folder / "fleet.toml").write_text(HEAD + "".join(agents), encoding="utf-8")
    pd.DataFrame([(x, y) for y in line for x in line], columns=["x", "y"]).to_csv(folder / "points.csv", index=False)


def fleetgp(folder: Path, words: str) -> Any:
    """`fleetgp ..` as one types it, as a process of its own."""
    return Popen([sys.executable, "-m", "fleetgp", *words.split()], cwd=folder, stdout=PIPE, stderr=DEVNULL, text=True)


def ask(folder: Path, members: int, how: str = "") -> dict[str, Any]:
    """Ask boat0 until so many boats have met, since a process needs a moment to begin: who answered, and the map."""
    began = time.monotonic()
    while time.monotonic() - began < 600.0:
        told, _ = fleetgp(folder, f"ask fleet.toml points.csv --agent boat0 --out map.csv --json {how}").communicate()
        if told and len((found := json.loads(told))["members"]) == members:
            return {**found, "map": pd.read_csv(folder / "map.csv"), "seconds": time.monotonic() - began}
    raise TimeoutError(f"{members} boats have not met within ten minutes")


def main(quick: bool = False, port: int = 47310) -> tuple[Figure, dict[str, float]]:
    line, boats = np.linspace(0.02, 1.98, 10 if quick else 40), [f"boat{k}" for k in range(3 if quick else 5)]
    with TemporaryDirectory() as name:
        write(folder := Path(name), boats, 150 if quick else 400, line, port)
        running = {boat: fleetgp(folder, f"agent fleet.toml --name {boat} --log {boat}.log") for boat in boats}
        try:
            answers = [ask(folder, len(boats))]
            running[LOST].kill()
            answers += [ask(folder, len(boats) - 1, how) for how in ("", "--method dec-nn-rbcm")]
            running["again"] = fleetgp(folder, f"agent fleet.toml --name {LOST} --log {LOST}.log")
            answers.append(ask(folder, len(boats)))
        finally:
            for process in running.values():
                process.terminate()
                process.communicate()
    titles = ("All boats", f"Without {LOST}", f"Without {LOST}, by dec-nn-rbcm", f"{LOST} is back")
    axes = (figure := Figure(figsize=(9.0, 2.9), layout="constrained")).subplots(1, 3)
    for ax, title, told in zip(axes, titles, answers, strict=False):
        std = told["map"]["std"].to_numpy().reshape(len(line), -1)
        image = ax.pcolormesh(line, line, std, vmin=0.0, vmax=0.7, cmap="magma")
        ax.set(title=title, xlabel="x (km)", ylabel="y (km)")
    figure.colorbar(image, ax=axes, label="standard deviation (°C)", shrink=0.9)
    names = (f"mean standard deviation of the map, {title[0].lower()}{title[1:]}, °C" for title in titles)
    numbers = {name: float(told["map"]["std"].mean()) for name, told in zip(names, answers, strict=True)}
    return figure, numbers | {"seconds from the loss to an answer": answers[1]["seconds"]}


if __name__ == "__main__":
    drawn, numbers = main()
    drawn.savefig("losses.png", dpi=150)
    print(*(f"{name}: {value:.3g}" for name, value in numbers.items()), sep="\n")
