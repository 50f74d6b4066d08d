"""Shared data and graphs. Every random thing is seeded."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from threadpoolctl import ThreadpoolController

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.data import Shard
from fleetgp.engines import expert
from fleetgp.graph import Topology
from fleetgp.linalg.compiling import compiled_module
from tests.cluster import small_cluster

# Examples are the same in every run and may take as long as a busy machine needs. `make test-long` looks for new ones.
hypothesis_settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.register_profile(
    "steady", hypothesis_settings.get_profile("explore"), derandomize=True, max_examples=25
)
hypothesis_settings.load_profile("steady")

# What a shell starts in the background ignores Ctrl-C, and so would every process that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def examples(count: int, **more: Any) -> hypothesis_settings:
    """So many random examples where new ones are looked for, and a third of them in every run."""
    every_run = hypothesis_settings.get_current_profile_name() == "steady"
    return hypothesis_settings(max_examples=count // 3 if every_run else count, **more)


@cache
def paper_shards(n: int, agents: int, seed: int = 0) -> tuple[Shard, ...]:
    """The paper's field, cut into stripes along x."""
    field = fg.synthetic_field(n, seed=seed)
    shards = tuple(fg.partition(field.inputs, field.observations, agents=agents))
    for array in (array for shard in shards for array in shard):  # they are kept for other tests
        array.setflags(write=False)
    return shards


def alternating_path(agents: int) -> fg.GraphSequence:
    """A path whose even edges, odd edges, and no edges at all take turns: never connected, jointly so."""
    edges = [(i, i + 1) for i in range(agents - 1)]
    turns: list[list[tuple[int, int]]] = [edges[::2], edges[1::2], []]
    return fg.GraphSequence([fg.Graph(agents, turn, connected=False) for turn in turns])


def mostly_long(every: Iterable[str], *often: str) -> list[Any]:
    """Parameters of which only some are tested in every run; the others repeat the proof in long runs."""
    return [pytest.param(each, marks=[] if each in often else [pytest.mark.long]) for each in every]


def every_graph(agents: int) -> dict[str, Topology]:
    return {
        "path": fg.Graph.path(agents),
        "cycle": fg.Graph.cycle(agents),
        "star": fg.Graph.star(agents),
        "grid": fg.Graph.grid(agents),
        "complete": fg.Graph.complete(agents),
        "geometric": fg.Graph.geometric(agents, seed=3),
        "alternating": alternating_path(agents),
    }


#: The command line in a process that gets Ctrl-C as soon as so many pieces of its work are kept.
INTERRUPTED = """
import os, signal, sys
from fleetgp.files import ResumableCache
left, put = int(sys.argv.pop(1)), ResumableCache.put

def put_and_stop(self, name, piece):
    global left
    put(self, name, piece)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGINT)

ResumableCache.put = put_and_stop
from fleetgp.cli import main
main()
"""


def interrupted_after(pieces: int, *arguments: str) -> tuple[int, str]:
    """(exit code, stderr) of a command that is interrupted in the midst of its work, on machines of any speed."""
    command = [sys.executable, "-c", INTERRUPTED, str(pieces), *arguments]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stderr


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=expert.ENGINES, default="auto", help="what engine='auto' means in this run")
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in random order")
    parser.addoption(
        "--list-skipped",
        type=Path,
        metavar="FOLDER",
        help="where to write what was left out: skipped.txt, left-out.txt",
    )


def pytest_configure(config: pytest.Config) -> None:
    expert.AUTO = config.getoption("--engine")


def pytest_report_header() -> list[str]:
    """Whose arithmetic this run shows: NumPy and SciPy bring a BLAS each."""
    return [f"blas: {told}" for told in blas_in_use()]


def blas_in_use() -> list[str]:
    found = [c.info() for c in ThreadpoolController().lib_controllers if c.user_api == "blas"]
    return sorted(
        f"{Path(c['filepath']).parent.name} {c['internal_api']} {c['version']}, {c.get('architecture', '')} kernels, "
        f"threads: {c['num_threads']}"
        for c in found
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (seed := config.getoption("--shuffle")) is not None:
        random.Random(seed).shuffle(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each test goes to the next process that is free; those that need what takes long to make, to the same one.

    Three clusters on two cores would take four times as long as one, most of it to start their workers.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            name = Path(file).stem
            if "cluster" in name or name == "test_ray":
                return "cluster"
            return file if name == "test_site" else nodeid

    return Together(config, log)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """End with one table of what was left out, and why."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if isinstance(report.longrepr, tuple)]
    counts = Counter((report.nodeid.partition("::")[0], report.longrepr[2]) for report in skipped)
    rows = [
        f"{count:4}  {part:40}  {reason.removeprefix('Skipped: ')}\n"
        for (part, reason), count in sorted(counts.items())
    ]
    if (folder := config.getoption("--list-skipped")) is not None:
        folder.mkdir(exist_ok=True)
        names = sorted({report.nodeid for report in skipped})
        (folder / "skipped.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        (folder / "left-out.txt").write_text("".join(rows), encoding="utf-8")
    terminalreporter.section("what this run left out")
    terminalreporter.write("".join(rows) or "nothing\n")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)


@pytest.fixture
def conditionings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the data sets that were conditioned on, in turn."""
    sizes: list[int] = []
    real = expert.Expert.condition

    def counted(self: expert.Expert, theta: np.ndarray, before: Any = None) -> object:
        sizes.append(self.size)
        return real(self, theta, before)

    monkeypatch.setattr(expert.Expert, "condition", counted)
    return sizes


def positive_definite(rng: np.random.Generator, *shape: int) -> Array:
    """Well-conditioned symmetric matrices, (..., n, n)."""
    a = rng.standard_normal((*shape, shape[-1]))
    return np.asarray(a @ np.swapaxes(a, -1, -2) + shape[-1] * np.eye(shape[-1]))


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A Ray cluster with room for six workers, for all tests of this process that need one.

    Its workers do without compiled loops, which take seconds to load: compare with what is `uncompiled` here.
    """
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLEETGP_COMPILE", "0")
            stack.enter_context(small_cluster(6))
        yield


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No compiled loops in this process, nor in those that it starts."""
    monkeypatch.setenv("FLEETGP_COMPILE", "0")
    compiled_module.cache_clear()
    yield
    compiled_module.cache_clear()
