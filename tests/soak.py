"""A season of a fleet of processes: `python -m tests.soak --minutes 24`.

Six agents receive 24 hours of data over TLS and forget what is older than six. Meanwhile rows are taken back, an agent
is killed and started again, and a seventh joins without data and leaves. Every answer must be that of a simulated fleet
of exactly the rows that count, within a stated time. Memory, descriptors, threads and disk of every process must stay
flat after its first third, in which the window and caches fill.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import fleetgp as fg
from fleetgp.agent.memory import Checkpoint
from fleetgp.agent.observations import ObservationStore
from fleetgp.agent.summaries import load_summary
from fleetgp.errors import FleetGPWarning, NetworkError
from fleetgp.graph import Graph
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.operator.client import AgentClient
from fleetgp.operator.launch import free_ports
from fleetgp.options import Keep
from fleetgp.prediction.groups import Groups, summarize
from tests.cli.commands import run
from tests.processes import Machines
from tests.summaries import Simulated, assert_same

AGENTS = 6
#: The last one joins later, and leaves.
GUEST = f"a{AGENTS}"
LINKS = [*((k, (k + 1) % AGENTS) for k in range(AGENTS)), (0, 3), (1, 4)]
#: Hours of data, and how many of them count.
HOURS, WINDOW = 24.0, 6.0
#: Bytes of groups, few enough to be full after a third of the season, so that memory can be flat from then on.
BUDGET = 10_000
#: An agent keeps so many rows, however old they are.
NEWEST = 5
#: What happens in each part of the season, in this order.
EVENTS = ("request", "kill", "between", "restart", "join", "forget", "leave")
#: Seconds in which an agent answers, and in which a request that hits a change is repeated. Only a hang takes as long.
ANSWER, REPEAT = 60.0, 180.0
#: Seconds between two looks.
LOOK = 10.0
#: For the agents: glibc gives freed memory back at once, so that what a process has is what it needs.
FRUGAL = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
#: What counts as flat: the least of the last third is not beyond the largest of the first by more, or by a factor.
MEGABYTES, DESCRIPTORS, DISK = 8.0, 4, 1.5


@dataclass(frozen=True)
class Look:
    """One agent's process at some time."""

    minute: float
    megabytes: float
    descriptors: int
    threads: int
    disk: int
    rows: int

    @classmethod
    def at(cls, pid: int, state: Path, minute: float, rows: int) -> Look:
        process = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text(encoding="utf-8").splitlines())
        return cls(
            minute,
            int(status["VmRSS"].split()[0]) / 1024.0,
            len(os.listdir(process / "fd")),
            int(status["Threads"]),
            sum(_size(file) for file in state.rglob("*")),
            rows,
        )


def _size(file: Path) -> int:
    """The bytes of a file; one that is written whole may have taken its place just now."""
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:
        return 0


@dataclass
class Ledger:
    """The rows of one agent, by its acknowledgements: (hour, request, row), the oldest first."""

    rows: list[tuple[float, str, list[float]]]
    horizon: float = -np.inf  # rows before it were forgotten on request

    def settle(self, there: int | None = None) -> None:
        """Let go what the agent has forgotten, which are the oldest rows. there: how many it has; else those due."""
        there = self.due if there is None else there
        assert self.due <= there <= len(self.rows), f"{there} rows instead of {self.due}, or {len(self.rows)} at most"
        self.rows = self.rows[len(self.rows) - there :]

    @property
    def due(self) -> int:
        """How many rows count by the window. An agent that trains as rows arrive forgets before its next answer."""
        first = max(self.horizon, self.rows[-1][0] - WINDOW) if self.rows else 0.0
        inside = sum(hour >= first for hour, _, _ in self.rows)
        return max(inside, min(NEWEST, len(self.rows)))

    @property
    def shard(self) -> tuple[Any, Any]:
        table = np.array([row for _, _, row in self.rows]).reshape(-1, 3)
        return table[:, :2], table[:, 2]


@dataclass
class Season:
    """ticks: so many times every agent receives rows.  seconds: from one to the next.  Everything random is seeded."""

    folder: Path
    ticks: int
    seconds: float
    parts: int = 1
    keep: Keep = "nothing"
    seed: int = 0
    answers: int = 0
    repeats: int = 0
    mismatches: int = 0
    slowest: float = 0.0
    story: list[str] = field(default_factory=list)
    seen: dict[str, list[Look]] = field(default_factory=dict)

    def run(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.clients: dict[str, AgentClient] = {}
        self.starting: set[str] = set()
        shards = [self._rows(k, np.sort(self.rng.uniform(-WINDOW, 0.0, 20))) for k in range(AGENTS)]
        self.ledgers = {f"a{k}": Ledger([(row[1], "", row) for row in rows]) for k, rows in enumerate(shards)}
        self.ends = [f"tls/127.0.0.1:{port}" for port in free_ports(AGENTS + 1)]
        options: dict[str, Any] = {
            "inputs": ("x", "hour"),
            "model": 'time = "hour"\nnow = "data"\n',
            "kernel": "matern32(x) * matern12(hour)",
            "normalize": self.keep == "summary",
            "training_options": "rounds = 20\n",
            "prediction": "dec-rbcm" if self.keep == "nothing" else "dec-summary",
            "prediction_options": "" if self.keep == "nothing" else f"budget = {BUDGET}\n",
            "extra": f'\n[memory]\nwindow = {WINDOW}\nkeep = "{self.keep}"\n\n[tls]\nfolder = "keys"\n',
        }
        data = [self.ledgers[f"a{k}"].shard for k in range(AGENTS)]
        with Machines(self.folder, data, LINKS, endpoints=self.ends[:AGENTS], **options) as self.fleet:
            try:
                run("certs", str(self.fleet.file))
                self.fleet.begin(*self.fleet.names)
                self.fleet.wait_trained(self.fleet.names, 300.0)
                self.began = time.monotonic()
                self._pass()
                self._end()
            finally:
                for client in self.clients.values():
                    client.close()

    def _pass(self) -> None:
        """All ticks: rows for every agent, events at random ticks, and questions in between and after each event."""
        due, length = list[tuple[int, str]](), self.ticks // self.parts
        for part in range(self.parts):
            moments = np.sort(self.rng.choice(length, len(EVENTS), replace=False)) + part * length
            due += zip(moments.tolist(), EVENTS, strict=True)
        looked = 0.0
        for tick in range(self.ticks):
            self.hour = HOURS * (tick + 1) / self.ticks
            for name in self._there():
                self._observe(name, f"s{tick}")
            if due and due[0][0] == tick:
                self._happens(due.pop(0)[1])
                self._ask()
            elif self.rng.random() < 1.0 / 3.0:
                self._ask()
            elapsed = time.monotonic() - self.began
            if elapsed - looked >= LOOK:
                self._look(elapsed / 60.0)
                looked = elapsed
            time.sleep(max(0.0, self.seconds * (tick + 1) - elapsed))

    def _end(self) -> None:
        """When the fleet is left alone, all members answer, and nothing is overdue."""
        deadline = time.monotonic() + REPEAT
        while self._ask()["members"] != self.fleet.description.members:
            assert time.monotonic() < deadline, f"not all are back within {REPEAT:g} s: {self.fleet.last_words()}"
        self.hour += 0.1
        while self.keep == "nothing" and any(own.due < len(own.rows) for own in self.ledgers.values()):
            assert time.monotonic() < deadline, "rows are still overdue"
            for name in self._there():
                self._observe(name, f"end-{self.hour}")
            self.hour += 0.1
        self._ask()

    # ---- what happens --------------------------------------------------------------------------------------------

    def _happens(self, what: str) -> None:
        name = str(self.rng.choice(self._there()))
        own = self.ledgers[name]
        if what in ("request", "between", "forget"):
            requests = sorted({request for _, request, _ in own.rows if request})
            request, number = str(self.rng.choice(requests)), f"{what}-{len(self.story)}"
            hours = [hour for hour, _, _ in own.rows]
            first, last = np.quantile(hours, [0.4, 0.5]).tolist()
            if what == "forget":
                own.horizon = first
                gone = own.rows[: len(own.rows) - own.due]
                answer = self._request(name, "forget", name=number, before=first)
            elif what == "request":
                gone = [row for row in own.rows if row[1] == request]
                answer = self._request(name, "remove", name=number, request=request)
            else:
                gone = [row for row in own.rows if first <= row[0] <= last]
                answer = self._request(name, "remove", name=number, between=[first, last])
            exact, count = self.keep == "nothing", answer["forgotten" if what == "forget" else "removed"]
            # By the window rows also leave on their own, once a minute: then fewer are left for `forget`.
            fewer = count < len(gone) and (what == "forget" or not exact)
            assert count == len(gone) or fewer, f"{what}: {count} rows, not {len(gone)}"
            if exact or what != "forget":
                own.rows = [row for row in own.rows if row not in gone]
            self._acknowledged(name, answer["in_all"])
        elif what == "kill":
            name = self.killed = str(self.rng.choice([f"a{k}" for k in range(AGENTS)]))
            self._close(name)
            self._ask(lambda: self.fleet.kill(name), spared=name)
        elif what == "restart":
            name = self.killed
            self._start(name)
        elif what == "join":
            name, new = GUEST, GUEST not in self.fleet.names
            where = ("--endpoint", self.ends[-1], "--out", str(self.folder / "machines" / GUEST))
            self._roster("join", "--name", GUEST, "--neighbours", "a0", "a2", *where)
            if new:
                self.fleet.names.append(GUEST)
                self.ledgers[GUEST] = Ledger([])
            self._start(GUEST)
        elif what == "leave":
            name = GUEST
            self._close(GUEST)
            self._roster("leave", "--name", GUEST)
            assert self.fleet.running.pop(GUEST).wait(ANSWER) == 0, f"{GUEST} did not end well"
            self.starting.discard(GUEST)
        self.story.append(f"hour {self.hour:.1f}: {what} {name}")

    def _start(self, name: str) -> None:
        self.fleet.begin(name)
        self.starting.add(name)

    def _roster(self, *command: str) -> None:
        """Change the members. Requests carry the roster, so all connections are made again."""
        for name in list(self.clients):
            self._close(name)
        self.fleet.changed(command[0], str(self.fleet.file), *command[1:])

    def _there(self) -> list[str]:
        """The agents that run and can be reached."""
        for name in sorted(self.starting):
            if self.fleet.status(name).get("roster") == self.fleet.description.roster.version:
                self.starting.discard(name)
        return [name for name in self.fleet.names if name in self.fleet.running and name not in self.starting]

    # ---- requests ------------------------------------------------------------------------------------------------

    def _request(self, name: str, verb: str, /, **content: Any) -> Any:
        """An answer. What hits a change of members, which is an error that says so, is repeated for a stated time."""
        began = time.monotonic()
        while True:
            start = time.monotonic()
            try:
                if name not in self.clients:
                    self.clients[name] = AgentClient(self.fleet.description, name)
                answer = self.clients[name].request(verb, ANSWER + 30.0, **content)
                self.slowest = max(self.slowest, time.monotonic() - start)
                return answer
            except NetworkError as error:
                took = time.monotonic() - start
                if "did not answer within" in str(error) or time.monotonic() - began > REPEAT:
                    raise AssertionError(f"a hang: {verb} at {name}: {error}\n{self.fleet.last_words()}") from error
                self._close(name)
                self.repeats += 1
                self.story.append(f"hour {self.hour:.1f}: {verb} at {name}, repeated after {took:.1f} s: {error}")
                time.sleep(0.2)

    def _close(self, name: str) -> None:
        if name in self.clients:
            self.clients.pop(name).close()

    def _rows(self, number: int, hours: Any) -> list[list[float]]:
        """Rows in an agent's own strip of a field that moves."""
        x = number + self.rng.uniform(0.0, 1.0, len(hours))
        values = np.sin(2.0 * x) + np.cos(np.asarray(hours) / 3.0) + 0.1 * self.rng.standard_normal(len(hours))
        rows: list[list[float]] = np.column_stack([x, hours, values]).tolist()
        return rows

    def _observe(self, name: str, request: str) -> None:
        rows = self._rows(int(name[1:]), [self.hour + 1e-3 * k for k in range(2)])
        answer = self._request(name, "observe", rows=rows, request=request)
        self.ledgers[name].rows += [(row[1], request, row) for row in rows]
        self._acknowledged(name, answer["in_all"])

    def _acknowledged(self, name: str, there: int) -> None:
        """Let go what an agent has forgotten. With groups it is not by age alone: then its files say what is there."""
        if self.keep == "nothing":
            self.ledgers[name].settle(there)

    def _ask(self, meanwhile: Callable[[], None] = lambda: None, spared: str = "") -> dict[str, Any]:
        """A question to some agent, whose answer must be the simulator's. spared: an agent that is not asked."""
        name = str(self.rng.choice([one for one in self._there() if one != spared]))
        queries = np.column_stack([self.rng.uniform(0.0, AGENTS + 1.0, 8), self.hour - self.rng.uniform(-1, WINDOW, 8)])
        question = {"queries": queries.tolist(), "seconds": ANSWER}
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(self._request, name, "ask", **question)
            meanwhile()
            answer: dict[str, Any] = waiting.result()
        if self.keep == "nothing":
            self._check_rows(queries, answer)
        else:
            self._check_groups(name, question, answer)
        self.answers += 1
        return answer

    def _check_rows(self, queries: Any, answer: dict[str, Any]) -> None:
        """Against a simulated fleet of the members' rows."""
        for member in answer["members"]:
            self.ledgers[member].settle()
        shards = [self.ledgers[member].shard for member in answer["members"]]
        simulated = fg.Fleet(
            shards,
            Graph(len(shards), [(k, k + 1) for k in range(len(shards) - 1)]),
            normalize=False,
            inputs=["x", "hour"],
            kernel=answer["trained"]["kernel"],
            theta=answer["theta"],
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FleetGPWarning)  # about points where no agent that is there has measured
            expected = simulated.predict(queries, "dec-rbcm")
        np.testing.assert_allclose(answer["mean"], expected.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(answer["variance"], expected.variance, rtol=1e-9)

    def _check_groups(self, name: str, question: dict[str, Any], answer: dict[str, Any]) -> None:
        """Against a simulated fleet with the groups that the asked agent holds, which must be of rows that count.

        Files are read after the answer. If the fleet has gone on by then, the question is repeated.
        """
        began = time.monotonic()
        while True:
            try:
                self._compare_groups(name, question["queries"], answer)
                return
            except AssertionError:
                if time.monotonic() - began > REPEAT / 6.0:
                    raise
            self.mismatches += 1
            answer = self._request(name, "ask", **question)

    def _compare_groups(self, name: str, queries: Any, answer: dict[str, Any]) -> None:
        description = self.fleet.description
        held, trained = self._held(name)
        members = [description.id_of(member) for member in answer["members"]]
        away = [agent for agent in sorted(held.entries) if agent not in members]
        groups = [
            held.entries[agent].groups if agent in held.entries else Groups.none(2) for agent in (*members, *away)
        ]
        assert set(answer["data_of"]) >= set(answer["members"])
        model = Simulated(
            description.kernel_of(trained.kernel), answer["theta"], trained.view, description.prediction_options()
        )
        shards, mine = list[Any](), list[Groups]()  # an agent also uses its own groups of rows that it has forgotten
        for member, agreed in zip(answer["members"], groups, strict=False):
            data, own = self._rows_of(member), self._held(member)[0]
            shards.append(data.shard)
            theta = answer["theta"] if own.own is None else own.own.theta
            modelled = replace(model, theta=theta)._conditioned([data.shard])
            h = Hyperparameters.from_theta(modelled.thetas[0])
            made = summarize(modelled.shards[0], own.members(data.shard), modelled.kernel, h).packed
            known = np.array(
                [np.isclose(made, row, rtol=1e-9, atol=1e-12).all(axis=1).any() for row in agreed.packed], dtype=bool
            )
            forgotten, kept = agreed.counts.sum() - agreed.counts[known].sum(), data.stand.kept.counts.sum()
            assert forgotten <= kept, f"{member}: groups of {forgotten} rows that do not count, and {kept} are kept"
            mine.append(replace(agreed, members=tuple(np.arange(one) for one in known.astype(int))))
        shards += [()] * len(away)
        assert_same(answer, model.predict(queries, shards, [*mine, *groups[len(mine) :]], range(len(members))))

    def _held(self, name: str) -> tuple[Any, Any]:
        """The summary and the model of an agent."""
        folder, description = self._state(name), self.fleet.description
        checkpoint = Checkpoint.load(folder / "checkpoint.json", description)
        summary = load_summary(folder / "summary.bin", description)
        assert checkpoint is not None
        assert summary is not None
        return summary, checkpoint.trained

    def _rows_of(self, name: str) -> ObservationStore:
        """The rows in an agent's files: all that are due, and none but acknowledged ones that were not removed."""
        description, journal = self.fleet.description, self._state(name) / "observed.jsonl"
        copy = self.folder / "copy.jsonl"
        copy.unlink(missing_ok=True)
        if journal.exists():
            shutil.copy(journal, copy)
        data = ObservationStore(
            description.data_of(description.id_of(name)), description.inputs, description.target, copy, time="hour"
        )
        own = self.ledgers[name]
        there = {tuple(row) for row in data.stand.values.tolist()}
        acknowledged = {tuple(row) for _, _, row in own.rows}
        due = {tuple(row) for _, _, row in own.rows[len(own.rows) - own.due :]}
        assert due <= there <= acknowledged, (
            f"{name}: {len(there)} rows, {len(due)} are due, {len(there - acknowledged)} wrong"
        )
        own.rows = [row for row in own.rows if tuple(row[2]) in there]
        return data

    def _state(self, name: str) -> Path:
        return self.folder / "machines" / name / "state" / name

    def _look(self, minute: float) -> None:
        for name in self._there():
            pid = self.fleet.running[name].pid
            look = Look.at(pid, self._state(name), minute, len(self.ledgers[name].rows))
            self.seen.setdefault(f"{name} (process {pid})", []).append(look)

    @property
    def growth(self) -> list[str]:
        """What is not flat, of processes that were seen often enough."""
        result = []
        for name, looks in self.seen.items():
            third = len(looks) // 3
            if third < 3:
                continue
            for what, factor, most in (
                ("megabytes", 1.0, MEGABYTES),
                ("descriptors", 1.0, DESCRIPTORS),
                ("threads", 1.0, DESCRIPTORS),
                ("disk", DISK, 2**16),
            ):
                before = max(getattr(look, what) for look in looks[:third])
                after = min(getattr(look, what) for look in looks[-third:])  # what is lost also raises the least
                if after > factor * before + most:
                    result.append(f"{name}: {what} grew from {before:.0f} to {after:.0f}")
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=24.0)
    parser.add_argument("--keep", choices=["nothing", "summary"], default="nothing")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ.update(FRUGAL)
    with tempfile.TemporaryDirectory() as folder:
        parts = max(1, round(given.minutes / 4.0))
        season = Season(Path(folder), int(60.0 * given.minutes), 1.0, parts, given.keep, given.seed)
        try:
            season.run()
        finally:
            print("\n".join(season.story))
    print(
        f"{season.answers} answers equal to the simulator's, the slowest after {season.slowest:.1f} s; "
        f"{season.repeats} requests repeated, {season.mismatches} answers while groups changed"
    )
    for name, looks in season.seen.items():
        for look in looks[:: max(1, len(looks) // 3)]:
            print(
                f"{name}, minute {look.minute:4.1f}: {look.megabytes:.1f} MB, {look.descriptors} descriptors, "
                f"{look.threads} threads, {look.disk} bytes on disk, {look.rows} rows"
            )
    growth = season.growth
    print("\n".join(growth) or "memory, descriptors, threads and disk are flat")
    sys.exit(bool(growth))


if __name__ == "__main__":
    main()
