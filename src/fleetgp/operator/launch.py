"""All agents of a file on this machine: started as processes, watched, and stopped; and an example fleet of boats."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fleetgp.agent.description import Description
from fleetgp.data import partition, synthetic_field
from fleetgp.errors import InputError, NetworkError
from fleetgp.files import check_folder, whole
from fleetgp.fleet.privacy import PREDICTOR
from fleetgp.io.tables import write_columns
from fleetgp.operator.client import AgentClient
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
retrain_on_membership_change = true   # when agents leave or come
again_after = "when-needed" # when new rows say that theta no longer fits; or a number of new rows; 0: on command
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
        rounded = {column: values.round(9) for column, values in columns.items()}  # as few digits as instruments give
        write_columns(folder / "data" / f"{name}.csv", rounded)
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
    prediction: str = PREDICTOR,
    prediction_options: str = "",
    kernel: str = KERNEL,
    normalize: bool = ModelOptions.normalize,
    connect: float = 30,
    round: float = 30,
    lease: float = 5,
) -> str:
    """A fleet.toml with these agents and links."""
    options = {"training_options": training_options, "prediction_options": prediction_options}
    seconds = {"connect": connect, "round": round, "lease": lease}
    model = {"kernel": kernel, "normalize": str(normalize).lower(), "training": training, "prediction": prediction}
    parts = [HEAD.format(count=len(names), name=name, **model, **options, **seconds)]
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


#: listener(agent, line): gets every line that an agent logs, as it comes.
LogListener = Callable[[str, dict[str, Any]], None]


class Launched:
    """The agents' processes. detach: they outlive this one, and log to files instead of to the listener."""

    def __init__(
        self, file: Path, description: Description, *, detach: bool = False, listener: LogListener | None = None
    ) -> None:
        self.description, self._listener = description, listener
        # One BLAS thread each: several agents share this machine's cores.
        env = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **os.environ}
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._before: dict[str, int] = {}
        try:
            for name in description.described:
                command = [sys.executable, "-m", "fleetgp", "agent", str(file.resolve()), "--name", name]
                if detach:
                    command += ["--log", str(self.log_of(name))]
                    self._before[name] = self.log_of(name).stat().st_size if self.log_of(name).exists() else 0
                self.processes[name] = subprocess.Popen(
                    command,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL if detach else subprocess.PIPE,
                    text=True,
                    start_new_session=True,  # Ctrl-C goes to this process, which then stops them
                )
        except BaseException:
            self.stop(0.0)
            raise
        self._readers = [] if detach else [self._reader(name) for name in self.processes]

    def log_of(self, name: str) -> Path:
        return self.description.state / name / "agent.log"

    def wait(self) -> dict[str, int]:
        """Until all have ended by themselves: their exit codes."""
        return {name: process.wait() for name, process in self.processes.items()}

    def wait_until_reachable(self, seconds: float) -> None:
        """Until all answer, or one error that names those who do not."""
        deadline = time.monotonic() + seconds
        for name, process in self.processes.items():
            while not _answers(self.description, name):
                if process.poll() is not None:
                    raise NetworkError(f"{name} ended with exit code {process.returncode}: {self._last_words(name)}")
                if time.monotonic() > deadline:
                    raise NetworkError(f"{name} does not answer after {seconds:g} s: see {self.log_of(name)}")
                time.sleep(0.1)

    def stop(self, seconds: float = 10.0) -> list[str]:
        """Ask all processes to end, and kill those that have not ended in time; the names of the killed."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        killed = []
        for name, process in self.processes.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed.append(name)
        return killed

    def _reader(self, name: str) -> threading.Thread:
        stream = self.processes[name].stderr
        assert stream is not None
        thread = threading.Thread(target=self._read, args=(name, stream), daemon=True)
        thread.start()
        return thread

    def _read(self, name: str, lines: Iterable[str]) -> None:
        for line in lines:
            try:
                document = json.loads(line)
            except ValueError:
                document = None
            self._pass_on(name, document if isinstance(document, dict) else {"event": line.strip(), "level": "error"})
        code = self.processes[name].wait()
        self._pass_on(name, {"event": "ended", "code": code, "level": "info" if code == 0 else "error"})

    def _pass_on(self, name: str, document: dict[str, Any]) -> None:
        """An error there must not end the reading: an agent whose lines nobody reads would block."""
        if self._listener is not None:
            with suppress(Exception):
                self._listener(name, document)

    def _last_words(self, name: str) -> str:
        try:
            with self.log_of(name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                # A shorter file than before is a new one: the old one was full, and moved aside.
                before = self._before[name] if self._before[name] <= size else 0
                file.seek(max(before, size - 100_000))
                last = json.loads(file.read().splitlines()[-1])
            return str(last.get("error") or last.get("event"))
        except (OSError, ValueError, IndexError, AttributeError):
            return "it left no word"


def _answers(description: Description, name: str) -> bool:
    try:
        with AgentClient(description, name, reach=0.5) as client:
            client.request("status", 2.0)
    except NetworkError:
        return False
    return True
