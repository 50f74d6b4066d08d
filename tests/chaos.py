"""Random faults in a real fleet, and what must be true when they end: `python -m tests.chaos --trials 50`.

A trial starts agents as processes, on hosts of their own where network namespaces can be had, and lets random faults
happen to them: kill -9 and restarts, SIGSTOP and SIGCONT, links that are cut and healed, lost packets. Then it leaves
the fleet alone. Within a stated time every part that is left must serve, its agents must agree to 1e-6, their theta
must be that of an in-process fleet of exactly these agents, and whoever is asked must answer and name them.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import fleetgp as fg
from fleetgp.agent.certificates import make_certificate
from fleetgp.errors import NetworkError
from fleetgp.graph import Graph, as_topology
from fleetgp.network.session import OPERATOR
from tests.hosts import Hosts, unavailable
from tests.processes import Processes

#: How far two agents of a part may differ in log theta, and how far from the in-process fleet.
AGREE = 1e-6
EQUAL = 1e-6
TOL = 3e-8
#: Seconds in which a fleet that is left alone must have settled.
RECOVER = 90.0
FAULTS = ("kill", "restart", "freeze", "thaw", "cut", "heal", "loss", "ask")


class Trial:
    """One fleet and its faults. Everything random follows from the seed."""

    def __init__(self, seed: int, folder: Path, *, hosts: bool, agents: int | None = None, faults: int = 6) -> None:
        self.seed, self.folder, self.on_hosts, self.faults = seed, folder, hosts, faults
        self.rng = np.random.default_rng(seed)
        self.agents = int(self.rng.integers(3, 7)) if agents is None else agents
        family = str(self.rng.choice(["path", "cycle", "star", "complete", "geometric"]))
        self.graph = as_topology(family, self.agents, seed=seed).union
        self.shards = _shards(self.agents, seed)
        self.alive, self.frozen = set(range(self.agents)), set[int]()
        self.cuts: set[tuple[int, int]] = set()
        self.story: list[str] = [f"{self.agents} agents on a {family} graph, {'hosts' if hosts else 'loopback'}"]
        self.answers = self.refusals = 0
        self.recovery = 0.0

    def run(self) -> None:
        with ExitStack() as stack:
            hosts = stack.enter_context(Hosts(self.agents)) if self.on_hosts else None
            self.hosts = hosts
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
        else:
            return
        self.story.append(f"{what} {names[agent]}")

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
            self.fleet.request(self.fleet.names[agent], "ask", seconds + 1.0, queries=QUERIES, seconds=seconds)
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
            states = self.fleet.wait_trained(names, left)
            thetas = np.log([list(states[name]["theta"].values()) for name in names])
            assert np.ptp(thetas, axis=0).max() <= AGREE, f"{names} differ by {np.ptp(thetas, axis=0).max():.1e}"
            expected = np.log(self._expected(part))
            apart = float(np.abs(thetas - expected).max())
            assert apart <= EQUAL, f"{names} are {apart:.1e} away from the in-process fleet of these agents"
            self.recovery = max(self.recovery, time.monotonic() - began)
            asked = str(self.rng.choice(names))
            answer = self.fleet.request(asked, "ask", 100.0, queries=QUERIES, seconds=90.0)
            assert answer["members"] == names, f"{asked} answers with {answer['members']} instead of {names}"
            self.story.append(f"part {'+'.join(names)} equal to {apart:.0e}")

    def _expected(self, part: Sequence[int]) -> Any:
        position = {agent: k for k, agent in enumerate(part)}
        edges = [
            (position[int(a)], position[int(b)])
            for a, b in self.graph.edges
            if int(a) in position and int(b) in position and (int(a), int(b)) not in self.cuts
        ]
        fleet = fg.Fleet([self.shards[agent] for agent in part], Graph(len(part), edges), normalize=True)
        fit = fleet.train("dec-apx-gp", theta0=THETA0, tol=TOL)
        assert fit.status == "converged"
        return fit.theta

    # ---- the fleet --------------------------------------------------------------------------------------------

    def _fleet(self, hosts: Hosts | None) -> Processes:
        edges = [(int(a), int(b)) for a, b in self.graph.edges]
        options: dict[str, Any] = {
            "training": "dec-apx-gp",
            "training_options": f"theta0 = {THETA0}\ntol = {TOL}\n",
            "prediction": "dec-rbcm",
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
            endpoints=[f"tls/{hosts.address(agent)}:7447" for agent in range(self.agents)],
            extra='\n[tls]\nfolder = "keys"\n',
            inside=hosts.inside,
            **options,
        )

    def _pause(self, least: float, most: float) -> None:
        time.sleep(float(self.rng.uniform(least, most)))


THETA0 = [1.0, 0.5, 1.0, 0.3]
QUERIES = [[0.5, 0.5], [1.5, 1.0]]


def _shards(agents: int, seed: int) -> list[Any]:
    field = fg.synthetic_field(40 * agents, seed=seed % 7)
    return fg.partition(field.inputs, field.observations, agents=agents, by="random", seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
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
