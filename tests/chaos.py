"""Random faults in a real fleet, and what must be true when they end: `python -m tests.chaos --trials 100`.

A trial starts agents as processes, on hosts of their own where network namespaces can be had (over TLS or QUIC), and
lets random faults happen to them: kill -9 and restarts, one after the other and in loops, SIGSTOP and SIGCONT, links
that are cut and healed, lost packets, full disks. New rows are told to them, and told again. Then it leaves the fleet
alone. Within a stated time every part that is left must serve and its agents must agree to 1e-6. Every row that was
acknowledged must be there once, and no other: the agents' theta must be that of an in-process fleet of exactly these
agents and rows. Whoever is asked, by some method along the tree or by averages, must answer as that fleet does and name
the members.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

import fleetgp as fg
from fleetgp.agent.certificates import make_certificate
from fleetgp.errors import NetworkError
from fleetgp.graph import Graph, as_topology
from fleetgp.network.zenoh.session import OPERATOR
from tests.hosts import Hosts, unavailable
from tests.processes import Processes

#: How far two agents of a part may differ in log theta, and how far from the in-process fleet.
AGREE = 1e-6
EQUAL = 1e-6
TOL = 3e-8
#: Seconds in which a fleet that is left alone must have settled.
RECOVER = 90.0
FAULTS = ("kill", "restart", "loop", "freeze", "thaw", "cut", "heal", "loss", "ask", "observe", "again", "fill", "free")


class Trial:
    """One fleet and its faults. Everything random follows from the seed."""

    def __init__(self, seed: int, folder: Path, *, hosts: bool, agents: int | None = None, faults: int = 8) -> None:
        self.seed, self.folder, self.on_hosts, self.faults = seed, folder, hosts, faults
        self.rng = np.random.default_rng(seed)
        self.agents = int(self.rng.integers(3, 7)) if agents is None else agents
        family = str(self.rng.choice(["path", "cycle", "star", "complete", "geometric"]))
        self.graph = as_topology(family, self.agents, seed=seed).union
        self.transport = str(self.rng.choice(["tls", "tls", "quic"])) if hosts else "tcp"
        self.consensus: Any = "average" if seed % 3 == 2 else "tree"
        #: Who leaves a fleet that predicts by dec-summary is no reason to train: the others keep its groups.
        self.summarizes = seed % 2 == 1
        self.shards = _shards(self.agents, seed)
        self.alive, self.frozen = set(range(self.agents)), set[int]()
        self.cuts: set[tuple[int, int]] = set()
        self.story: list[str] = [f"{self.agents} agents on a {family} graph over {self.transport}, {self.consensus}"]
        self.answers = self.refusals = 0
        self.recovery = 0.0
        self.told = Told(self.agents)
        self.disks = Disks(folder, self.agents) if hosts else None

    def run(self) -> None:
        with ExitStack() as stack:
            hosts = stack.enter_context(Hosts(self.agents)) if self.on_hosts else None
            self.hosts = hosts
            if self.disks is not None:
                stack.enter_context(self.disks)
            fleet = stack.enter_context(self._fleet(hosts))
            self.fleet = fleet
            fleet.start()
            # Some faults come while the fleet trains, some when it serves.
            if self.rng.random() < 0.5:
                fleet.wait_trained(fleet.names, RECOVER)
                self.story.append("trained")
            else:
                self._pause(4.0, 7.0)
            for _ in range(self.faults):
                self._fault(str(self.rng.choice(FAULTS)))
                self._pause(0.0, 2.0)
            self._calm()
            self._judge()

    # ---- faults ---------------------------------------------------------------------------------------------

    def _fault(self, what: str) -> None:
        names, running = self.fleet.names, sorted(self.alive - self.frozen)
        edges = [(int(a), int(b)) for a, b in self.graph.edges]
        if what == "kill" and len(running) > 1:
            agent = int(self.rng.choice(running))
            self.fleet.kill(names[agent])
            self.alive.discard(agent)
        elif what == "restart" and len(self.alive) < self.agents:
            agent = int(self.rng.choice(sorted(set(range(self.agents)) - self.alive)))
            self.fleet.start(names[agent])
            self.alive.add(agent)
        elif what == "freeze" and len(running) > 1:
            agent = int(self.rng.choice(running))
            self.fleet.signal(names[agent], signal.SIGSTOP)
            self.frozen.add(agent)
        elif what == "thaw" and self.frozen:
            agent = int(self.rng.choice(sorted(self.frozen)))
            self.fleet.signal(names[agent], signal.SIGCONT)
            self.frozen.discard(agent)
        elif what == "cut" and self.hosts is not None:
            agent, other = edges[int(self.rng.integers(len(edges)))]
            self.hosts.cut(agent, other)
            self.cuts.add((agent, other))
            what += f" {names[other]}"
        elif what == "heal" and self.hosts is not None and self.cuts:
            agent, other = sorted(self.cuts)[int(self.rng.integers(len(self.cuts)))]
            self.hosts.heal(agent, other)
            self.cuts.discard((agent, other))
            what += f" {names[other]}"
        elif what == "loss" and self.hosts is not None:
            self.hosts.lose(0.0 if self.hosts.loss else 0.2)
            self.story.append(f"loss {self.hosts.loss:.0%}")
            return
        elif what == "ask" and running:
            agent = int(self.rng.choice(running))
            what += " " + self._ask(agent, 3.0)
        elif what == "loop" and len(running) > 1:
            agent = int(self.rng.choice(running))
            for _ in range(4):
                self.fleet.kill(names[agent])
                self.fleet.start(names[agent])
                self._pause(0.3, 2.5)
        elif what == "observe" and running:
            agent = int(self.rng.choice(running))
            what += " " + self._observe(agent, *self.told.new(agent, self.shards[agent], self.rng))
        elif what == "again" and running:
            agent = int(self.rng.choice(running))
            if not self.told.requests[agent]:
                return
            request = str(self.rng.choice(sorted(self.told.requests[agent])))
            what += " " + self._observe(agent, request, self.told.requests[agent][request])
        elif what == "fill" and self.disks is not None:
            agent = int(self.rng.integers(self.agents))
            self.disks.fill(agent)
        elif what == "free" and self.disks is not None:
            agent = int(self.rng.integers(self.agents))
            self.disks.free(agent)
        else:
            return
        self.story.append(f"{what} {names[agent]}")

    def _observe(self, agent: int, request: str, rows: list[list[float]], seconds: float = 3.0) -> str:
        """Acknowledged, refused, or nobody knows: then it must be told again."""
        try:
            self.fleet.request(self.fleet.names[agent], "observe", seconds, rows=rows, request=request)
        except NetworkError:
            return "(error)"
        self.told.acknowledged[agent].add(request)
        return "(acknowledged)"

    def _settle_rows(self) -> None:
        """Whoever is there gets again what it has not acknowledged; twice, which must count once."""
        for agent in sorted(self.alive):
            if self.disks is not None:
                self.disks.free(agent)
            for request, rows in self.told.requests[agent].items():
                deadline = time.monotonic() + RECOVER
                while self._observe(agent, request, rows, 10.0) == "(error)":
                    assert time.monotonic() < deadline, f"{self.fleet.names[agent]} takes no rows: {request}"
                self._observe(agent, request, rows, 10.0)

    def _calm(self) -> None:
        """No further faults. Whoever is frozen, killed or cut off stays so in every second trial; loss stays, too."""
        if self.rng.random() < 0.5:
            while self.frozen:
                self._fault("thaw")
        else:
            for agent in sorted(self.frozen):  # as good as dead
                self.fleet.kill(self.fleet.names[agent])
                self.story.append(f"kill {self.fleet.names[agent]}")
            self.alive -= self.frozen
            self.frozen.clear()
        if self.rng.random() < 0.5:
            while self.cuts:
                self._fault("heal")

    def _ask(self, agent: int, seconds: float) -> str:
        """An answer or a clear error, within the time that was stated."""
        began = time.monotonic()
        try:
            method = str(self.rng.choice(METHODS))
            content = {"queries": QUERIES, "seconds": seconds, "method": method}
            self.fleet.request(self.fleet.names[agent], "ask", seconds + 1.0, **content)
            self.answers += 1
            said = "(answered)"
        except NetworkError:
            self.refusals += 1
            said = "(error)"
        assert time.monotonic() - began < seconds + 30.0, "an asker waited longer than was stated"
        return said

    # ---- what must be true ------------------------------------------------------------------------------------

    def parts(self) -> list[list[int]]:
        """Who can still reach whom."""
        edges = [(int(a), int(b)) for a, b in self.graph.edges if (int(a), int(b)) not in self.cuts]
        edges = [(a, b) for a, b in edges if a in self.alive and b in self.alive]
        components = Graph(self.agents, edges, connected=False).components
        return [part for part in components if set(part) <= self.alive]

    def _judge(self) -> None:
        began = time.monotonic()
        for part in self.parts():
            names = [self.fleet.names[agent] for agent in part]
            left = max(1.0, RECOVER - (time.monotonic() - began))
            self._settled(names, left)
            self.recovery = max(self.recovery, time.monotonic() - began)
        self._settle_rows()
        for part in self.parts():
            names = [self.fleet.names[agent] for agent in part]
            states = self._trained_anew(names)
            for agent, name in zip(part, names, strict=True):
                rows, expected = states[name]["rows"], len(self._shard(agent)[1])
                assert rows == expected, f"{name} has {rows} rows instead of {expected}"
            thetas = np.log([list(states[name]["theta"].values()) for name in names])
            assert np.ptp(thetas, axis=0).max() <= AGREE, f"{names} differ by {np.ptp(thetas, axis=0).max():.1e}"
            simulated = self._simulated(part)
            apart = float(np.abs(thetas - np.log(simulated.theta)).max())
            assert apart <= EQUAL, f"{names} are {apart:.1e} away from the in-process fleet of these agents"
            for method in METHODS:
                asked = str(self.rng.choice(names))
                answer = self.fleet.request(asked, "ask", 100.0, queries=QUERIES, seconds=90.0, method=method)
                assert answer["members"] == names, f"{asked} answers with {answer['members']} instead of {names}"
                given: Any = {"consensus": self.consensus}
                if method == "dec-summary":  # groups are made at one theta, where a cut may fall on a row
                    given = {"theta": np.exp(thetas.mean(axis=0))}
                found = simulated.predict(QUERIES, method, agent=names.index(asked), **given)
                for name, value in (("mean", found.mean), ("variance", found.variance)):
                    assert np.allclose(answer[name], value, rtol=1e-4), f"{method}: {name} {answer[name]}, not {value}"
            self.story.append(f"part {'+'.join(names)} equal to {apart:.0e}")

    def _settled(self, names: list[str], seconds: float) -> Any:
        """Until a part serves a model, as it does if it is left alone."""
        wait = self.fleet.wait_together if self.summarizes else self.fleet.wait_trained
        return wait(names, seconds)

    def _trained_anew(self, names: list[str]) -> Any:
        """Let a part train on all it has by now, and wait until it has done so."""
        before = self._settled(names, RECOVER)[names[0]]["trained"]["id"]
        asked = str(self.rng.choice(names))
        number = self.fleet.request(asked, "train", 30.0, cold=True)["training"]

        def done(states: dict[str, dict[str, Any]]) -> bool:
            ids = {state["trained"]["id"] for state in states.values() if state["trained"]}
            serving = all(state["phase"] == "serving" for state in states.values())
            return serving and len(ids) == 1 and before not in ids and states[asked]["fulfilled"] >= number

        self.fleet.wait(done, names, RECOVER)
        return self.fleet.wait_trained(names, RECOVER)

    def _shard(self, agent: int) -> Any:
        """What an agent must have: its file, and every row that it was told, once."""
        inputs, observations = self.shards[agent]
        rows = np.array([row for told in self.told.requests[agent].values() for row in told]).reshape(-1, 3)
        return np.concatenate([inputs, rows[:, :2]]), np.concatenate([observations, rows[:, 2]])

    def _simulated(self, part: Sequence[int]) -> Any:
        """An in-process fleet of exactly these agents and rows, trained."""
        position = {agent: k for k, agent in enumerate(part)}
        edges = [
            (position[int(a)], position[int(b)])
            for a, b in self.graph.edges
            if int(a) in position and int(b) in position and (int(a), int(b)) not in self.cuts
        ]
        fleet = fg.Fleet([self._shard(agent) for agent in part], Graph(len(part), edges), normalize=True, kernel="se")
        fit = fleet.train("dec-apx-gp", theta0=THETA0, tol=TOL)
        assert fit.status == "converged", f"the in-process fleet of {part} ended by {fit.status}"
        return fleet

    # ---- the fleet --------------------------------------------------------------------------------------------

    def _fleet(self, hosts: Hosts | None) -> Processes:
        edges = [(int(a), int(b)) for a, b in self.graph.edges]
        options: dict[str, Any] = {
            "training": "dec-apx-gp",
            "training_options": f"theta0 = {THETA0}\ntol = {TOL}\n",
            "prediction": "dec-summary" if self.summarizes else "dec-rbcm",
            "prediction_options": f'consensus = "{self.consensus}"\n',
            "connect": 10,
            "round": 6,
            "lease": 2,
        }
        if hosts is None:
            return Processes(self.folder, self.shards, edges, **options)
        keys = self.folder / "keys"
        for agent in range(self.agents):
            make_certificate(keys, f"a{agent}", hosts=[hosts.address(agent)])
        make_certificate(keys, OPERATOR, hosts=["localhost"])
        return Processes(
            self.folder,
            self.shards,
            edges,
            endpoints=[f"{self.transport}/{hosts.address(agent)}:7447" for agent in range(self.agents)],
            extra='\n[tls]\nfolder = "keys"\n',
            inside=hosts.inside,
            **options,
        )

    def _pause(self, least: float, most: float) -> None:
        time.sleep(float(self.rng.uniform(least, most)))


class Told:
    """The rows that agents were told: requests[agent][name], and which of them were acknowledged."""

    def __init__(self, agents: int) -> None:
        self.requests: list[dict[str, list[list[float]]]] = [{} for _ in range(agents)]
        self.acknowledged: list[set[str]] = [set() for _ in range(agents)]

    def new(self, agent: int, shard: Any, rng: np.random.Generator) -> tuple[str, list[list[float]]]:
        """Three observations near some that the agent has, so that they fit the field."""
        name = f"r{agent}-{len(self.requests[agent])}"
        near = rng.integers(len(shard[1]), size=3)
        places, values = shard[0][near] + rng.normal(0.0, 0.01, (3, 2)), shard[1][near] + rng.normal(0.0, 0.05, 3)
        rows = np.column_stack([places, values]).tolist()
        self.requests[agent][name] = rows
        return name, rows


class Disks:
    """A small disk of its own for the state of every agent, which can be filled up. Needs root."""

    def __init__(self, folder: Path, agents: int) -> None:
        self.places = [folder / "state" / f"a{agent}" for agent in range(agents)]
        self._mounted: list[Path] = []

    def fill(self, agent: int) -> None:
        with suppress(OSError), (self.places[agent] / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

    def free(self, agent: int) -> None:
        (self.places[agent] / "ballast").unlink(missing_ok=True)

    def __enter__(self) -> Disks:
        for place in self.places:
            place.mkdir(parents=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], check=True)
            self._mounted.append(place)
        return self

    def __exit__(self, *_: object) -> None:
        for place in self._mounted:
            subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


#: By which questions are answered: without and with samples, by all and by those who know something, and with groups.
METHODS = ("dec-rbcm", "dec-grbcm", "dec-nn-grbcm", "dec-nn-gpoe", "dec-summary")
THETA0 = [1.0, 0.5, 1.0, 0.3]
QUERIES = [[0.5, 0.5], [1.5, 1.0]]


def _shards(agents: int, seed: int) -> list[Any]:
    field = fg.synthetic_field(40 * agents, seed=seed % 7)
    return fg.partition(field.inputs, field.observations, agents=agents, by="random", seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    arguments = parser.parse_args()
    missing = unavailable()
    if missing:
        print(f"cut links and lost packets are skipped: {missing}", flush=True)
    failed = []
    for seed in range(arguments.seed, arguments.seed + arguments.trials):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial(seed, Path(folder), hosts=not missing)
            try:
                trial.run()
                verdict = f"ok, settled after {trial.recovery:.1f} s"
            except (AssertionError, NetworkError) as error:
                failed.append(seed)
                verdict = f"FAILED: {error}"
        print(f"trial {seed} ({time.monotonic() - began:.0f} s): {'; '.join(trial.story)}: {verdict}", flush=True)
    print(
        f"{arguments.trials - len(failed)} of {arguments.trials} trials passed"
        + (f"; failed: {failed}" if failed else "")
    )
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
