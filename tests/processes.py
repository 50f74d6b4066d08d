"""A real fleet for tests: one process per agent, each with a file of its own, that can be killed, frozen and asked."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from fleetgp.agent.description import read_description
from fleetgp.data.partition import Shard
from fleetgp.errors import NetworkError
from fleetgp.operator.client import AgentClient
from fleetgp.operator.launch import fleet_text, free_ports
from tests.cli.commands import run


class Processes:
    """Agents a0, a1, ... with these shards and links. options: of fleet.toml, as `fleet_text` has them.

    model: lines of fleet.toml about the model.  inside: what to put before an agent's command, to run it in a network
    namespace.
    """

    def __init__(
        self,
        folder: Path,
        shards: Sequence[Shard],
        edges: Sequence[tuple[int, int]],
        *,
        inputs: Sequence[str] = ("x", "y"),
        endpoints: Sequence[str] | None = None,
        model: str = "",
        extra: str = "",
        inside: Callable[[int], list[str]] = lambda _: [],
        **options: Any,
    ) -> None:
        self.folder, self.names = folder, [f"a{k}" for k in range(len(shards))]
        self.inside = inside
        for name, (places, observations) in zip(self.names, shards, strict=True):
            np.savez(folder / f"{name}.npz", temperature=observations, **dict(zip(inputs, places.T, strict=True)))
        ends = endpoints or [f"tcp/127.0.0.1:{port}" for port in free_ports(len(shards))]
        files = [f"{name}.npz" for name in self.names]
        self.file = folder / "fleet.toml"
        text = fleet_text("test", self.names, ends, files, edges, **{"kernel": "se", **options})
        text = text.replace('inputs = ["x", "y"]\n', f"inputs = {json.dumps(list(inputs))}\n{model}")
        text = text.replace("watch = true", "watch = false").replace('again_after = "when-needed"', "again_after = 0")
        self.file.write_text(text + extra, encoding="utf-8")
        self.description = read_description(self.file)
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *names: str, file: Path | None = None) -> None:
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        for name in names or self.names:
            command = [sys.executable, "-m", "fleetgp", "agent", str(file or self.file), "--name", name]
            with (self.folder / f"{name}.log").open("ab") as log:
                inside = self.inside(self.names.index(name))
                self.running[name] = subprocess.Popen([*inside, *command], env=env, stderr=log, stdout=log)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        self.running[name].send_signal(number)

    def stop(self) -> None:
        for process in self.running.values():
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        for name, process in self.running.items():
            try:
                process.wait(60.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"{name} did not stop") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.stop()
        except AssertionError:
            if kind is None:
                raise

    def request(self, name: str, verb: str, within: float = 10.0, **content: Any) -> Any:
        with AgentClient(self.description, name) as client:
            return client.request(verb, within, **content)

    def status(self, name: str) -> dict[str, Any]:
        try:
            # A QUIC handshake that loses a packet waits a second for it: who gives up before only makes more of them.
            lossy = self.description.agents[self.names.index(name)].endpoint.startswith("quic/")
            with AgentClient(self.description, name, reach=6.0 if lossy else 1.0) as client:
                state: dict[str, Any] = client.request("status", 3.0)
                return state
        except NetworkError:
            return {}

    def wait(self, done: Callable[[dict[str, dict[str, Any]]], bool], names: Sequence[str], seconds: float) -> Any:
        """Until done(status by name) holds; the last status otherwise goes into the error."""
        deadline = time.monotonic() + seconds
        while True:
            states = {name: self.status(name) for name in names}
            if all(states.values()) and done(states):
                return states
            if time.monotonic() > deadline:
                told = {name: {k: s.get(k) for k in KEPT} for name, s in states.items()}
                raise AssertionError(f"not within {seconds:g} s: {told}\n{self.last_words()}")
            time.sleep(0.3)

    def wait_trained(self, names: Sequence[str], seconds: float = 240.0) -> Any:
        """Until exactly these agents serve a model that they trained together."""

        def done(states: dict[str, dict[str, Any]]) -> bool:
            # They are not asked at the same instant: one training may be over, and another under way.
            return len({s["trained"]["id"] for s in states.values() if s["trained"]}) == 1 and all(
                s["phase"] == "serving" and s["members"] == list(names) and s["trained"]["by"] == list(names)
                for s in states.values()
            )

        return self.wait(done, names, seconds)

    def wait_together(self, names: Sequence[str], seconds: float = 240.0) -> Any:
        """Until exactly these agents serve one model, whoever trained it."""

        def done(states: dict[str, dict[str, Any]]) -> bool:
            return len({s["trained"]["id"] for s in states.values() if s["trained"]}) == 1 and all(
                s["phase"] == "serving" and s["members"] == list(names) for s in states.values()
            )

        return self.wait(done, names, seconds)

    def thetas(self, names: Sequence[str]) -> Any:
        return np.array([list(self.status(name)["theta"].values()) for name in names])

    def log(self, name: str) -> list[dict[str, Any]]:
        lines = (self.folder / f"{name}.log").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def last_words(self) -> str:
        return "\n".join(
            f"{name}: " + " | ".join((self.folder / f"{name}.log").read_text(encoding="utf-8").splitlines()[-12:])
            for name in self.names
            if (self.folder / f"{name}.log").exists()
        )


class Machines(Processes):
    """A fleet whose agents have folders of their own, as on machines of their own; the operator has another one."""

    def place(self, name: str) -> Path:
        """The folder of an agent of the file, made as in the checklist of docs/fleet.md."""
        folder = self.folder / "machines" / name
        if not folder.exists():
            (folder / "keys").mkdir(parents=True)
            for path in (self.file, self.folder / f"{name}.npz"):
                shutil.copy(path, folder)
            for file in ("authority.crt", f"{name}.crt", f"{name}.key"):
                shutil.copy(self.folder / "keys" / file, folder / "keys")
        return folder

    def begin(self, *names: str) -> None:
        for name in names:
            self.start(name, file=self.place(name) / "fleet.toml")

    def changed(self, *command: str) -> dict[str, Any]:
        """Run a command of the operator, who then has the newer roster."""
        answer: dict[str, Any] = json.loads(run(*command, "--json").stdout)
        self.description = read_description(self.file)
        return answer


KEPT = ("phase", "round", "members", "trained", "neighbours", "problem")
