"""All agents of a file on this machine: started as processes of their own, watched, and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleetgp.agent.description import Description
from fleetgp.errors import NetworkError
from fleetgp.operator.client import AgentClient

Told = Callable[[str, dict[str, Any]], None]


class Launched:
    """The agents' processes. told(agent, line): every line an agent logs, as it comes."""

    def __init__(self, file: Path, description: Description, *, detach: bool = False, told: Told | None = None) -> None:
        self.description, self._told = description, told
        # One BLAS thread each: several agents share this machine's cores.
        env = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **os.environ}
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._before: dict[str, int] = {}
        try:
            for name in description.names:
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
                    start_new_session=True,  # Ctrl-C is for whoever started them, who then tells them
                )
        except BaseException:
            self.stop(0.0)
            raise
        self._readers = [] if detach else [self._reader(name) for name in description.names]

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
                told = json.loads(line)
            except ValueError:
                told = None
            self._tell(name, told if isinstance(told, dict) else {"event": line.strip(), "level": "error"})
        code = self.processes[name].wait()
        self._tell(name, {"event": "ended", "code": code, "level": "info" if code == 0 else "error"})

    def _tell(self, name: str, told: dict[str, Any]) -> None:
        """Pass a line on. An error there must not end the reading: an agent whose lines nobody reads would block."""
        if self._told is not None:
            with suppress(Exception):
                self._told(name, told)

    def _last_words(self, name: str) -> str:
        try:
            with self.log_of(name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                # A shorter file than before is a new one: the old one was full, and moved aside.
                before = self._before[name] if self._before[name] <= size else 0
                file.seek(max(before, size - 100_000))
                told = json.loads(file.read().splitlines()[-1])
            return str(told.get("error") or told.get("event"))
        except (OSError, ValueError, IndexError, AttributeError):
            return "it left no word"


def _answers(description: Description, name: str) -> bool:
    try:
        with AgentClient(description, name, reach=0.5) as client:
            client.request("status", 2.0)
    except NetworkError:
        return False
    return True
