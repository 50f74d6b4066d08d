"""A small fleet to try: boats on the paper's synthetic field, each with a file of its own."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetgp.data import partition, synthetic_field
from fleetgp.errors import InputError
from fleetgp.files import check_folder, whole
from fleetgp.io.tables import write_columns
from fleetgp.options import KERNEL, ModelOptions

HEAD = """\
# {count} agents on this machine. On machines of their own each has a copy of this file.
name = "{name}"
inputs = ["x", "y"]
target = "temperature"
kernel = "{kernel}"
normalize = {normalize}
state = "state"             # folder for checkpoints, observed rows and logs

[training]
method = "{training}"
again_with_members = true   # when agents leave or come
again_after = 0             # when there are this many new rows; 0: with `fleetgp retrain` only
{training_options}
[prediction]
method = "{prediction}"
{prediction_options}
[timeouts]                  # seconds
connect = {connect:<17} # to find each other at the start
round = {round:<19} # for a round, with the longest local computation
lease = {lease:<19} # until a silent link is dead
ask = 60                    # for an answer, or an error
"""

AGENT = """
[[agent]]
name = "{name}"
endpoint = "{endpoint}"
data = "{data}"
watch = true                # rows appended to the file are taken up
neighbours = [{neighbours}]
"""


def write_example(file: Path, boats: int = 5) -> None:
    """fleet.toml, a CSV per boat and points to ask for, in the file's folder, which must not hold a fleet yet."""
    if file.exists():
        raise InputError(f"{file}: there is a fleet already: start it without --example, or choose another name")
    if not 1 <= boats <= 100:
        raise InputError(f"expected 1 to 100 boats in an example, got {boats}")
    check_folder(file.parent)
    for taken in (file.parent / "data", file.parent / "points.csv"):
        if taken.exists():
            raise InputError(f"{taken}: the example would replace it: choose another folder")
    field = synthetic_field(120 * boats, seed=1)
    names = [f"boat{number + 1}" for number in range(boats)]
    folder = file.parent
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for name, (inputs, observations) in zip(
        names, partition(field.inputs, field.observations, agents=boats), strict=True
    ):
        columns = {"x": inputs[:, 0], "y": inputs[:, 1], "temperature": observations}
        write_columns(folder / "data" / f"{name}.csv", columns)
    grid = np.stack(np.meshgrid(np.linspace(0.1, 1.9, 7), np.linspace(0.1, 1.9, 7)), axis=-1).reshape(-1, 2)
    write_columns(folder / "points.csv", {"x": grid[:, 0], "y": grid[:, 1]})
    # In a circle: any one of them can be lost, and the others still reach each other.
    edges = [(number, (number + 1) % boats) for number in range(boats if boats > 2 else boats - 1)]
    with whole(file) as partial:
        endpoints = [f"tcp/127.0.0.1:{port}" for port in free_ports(boats)]
        files = [f"data/{name}.csv" for name in names]
        text = fleet_text("boats", names, endpoints, files, edges, kernel="se")  # as smooth as this field
        partial.write_text(text, encoding="utf-8")


def fleet_text(
    name: str,
    names: Sequence[str],
    endpoints: Sequence[str],
    data: Sequence[str],
    edges: Sequence[tuple[int, int]],
    *,
    training: str = "dec-fact-gp",
    training_options: str = "",
    prediction: str = "dec-nn-grbcm",
    prediction_options: str = "",
    kernel: str = KERNEL,
    normalize: bool = ModelOptions.normalize,
    connect: float = 30,
    round: float = 30,
    lease: float = 5,
) -> str:
    """A fleet.toml with these agents and links."""
    head = HEAD.format(
        count=len(names),
        name=name,
        kernel=kernel,
        normalize=str(normalize).lower(),
        training=training,
        training_options=training_options,
        prediction=prediction,
        prediction_options=prediction_options,
        connect=connect,
        round=round,
        lease=lease,
    )
    parts = [head]
    for number, agent in enumerate(names):
        others = sorted({b for a, b in edges if a == number} | {a for a, b in edges if b == number})
        listed = ", ".join(f'"{names[other]}"' for other in others)
        parts.append(AGENT.format(name=agent, endpoint=endpoints[number], data=data[number], neighbours=listed))
    return "".join(parts)


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens at the moment."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()
