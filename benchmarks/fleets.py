"""Large fleets: milliseconds a round, in process and on Ray, and 100,000 agents that are trained and asked.

python -m benchmarks.fleets AGENTS WORKERS EVALUATIONS: only the large fleet, of so many agents, in process (0 workers)
or on Ray, with so many evaluations or to the end of the training (0), as JSON. The section runs it in processes of its
own, so that peaks of memory are of one run each.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fleetgp as fg
from benchmarks.timing import Table, Tables, once, seconds
from fleetgp.graph.topology import cut, groups_of
from fleetgp.units import readable_bytes

#: Observations of each agent, and numbers that a round or a reduction carries: theta, and what dec-fact-gp adds up.
EACH, THETA, SUMMANDS = 100, 3, 20
#: Agents of the large fleet, evaluations of its training, and queries.
LARGE, EVALUATIONS, QUERIES = 100_000, 2, 16
#: Verbs in one measurement.
REPEATS = 20


def fleets() -> Tables:
    tables = Tables("Fleets on Ray")
    tables.note("Grid graphs, two cores. Load of the machine when this began: " + f"{os.getloadavg()[0]:.1f}.")
    tables.tables += [rounds(), large()]
    return tables


def rounds() -> Table:
    """One exchange of three numbers over every edge, and one reduction of twenty over the tree."""
    table = Table("A round and a reduction", "agents", "hosted", "edges cut", "exchange", "reduction", "its rounds",
                  "reduction / round")  # fmt: skip
    table.start()
    for agents in (1000, 10_000):
        graph = fg.Graph.grid(agents)
        network = fg.InProcess(graph)
        steps = 2 * network.tree.height
        for workers in (0, 1, 2):
            found = {verb: per_call(graph, workers, verb) for verb in (exchange, reduction)}
            where = "in process" if workers == 0 else f"Ray, {workers}"
            between = cut(graph, groups_of(graph, max(workers, 1)))
            table.add(agents, where, between, seconds(found[exchange]), seconds(found[reduction]), steps,
                      seconds(found[reduction] / steps))  # fmt: skip
    return table


def exchange(network: fg.Network) -> None:
    network.neighbour_sum(np.zeros((len(network.hosted), THETA)), "hyperparameters")


def reduction(network: fg.Network) -> None:
    network.reduce(np.zeros((len(network.hosted), 1, SUMMANDS)), "statistics")


def per_call(graph: fg.Graph, workers: int, verb: Callable[[fg.Network], None]) -> float:
    """Seconds of one call."""
    if workers == 0:
        return repeated(fg.InProcess(graph), None, None, verb)
    from fleetgp.network.ray.crew import Crew
    from fleetgp.network.ray.session import Session

    by_value()
    session = Session(None, workers)
    crew = Crew(groups_of(graph, workers))
    try:
        found = crew.task(graph, repeated, [(verb,)] * workers).finish()
    finally:
        crew.close()
        session.close()
    return max(found)


def repeated(network: fg.Network, _: object, __: object, verb: Callable[[fg.Network], None]) -> float:
    verb(network)
    return float(np.median([once(lambda: verb(network)) for _number in range(REPEATS)]))


def by_value() -> None:
    """Workers have the library, but not this module: its functions travel whole."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])


# ---- the large fleet ---------------------------------------------------------------------------------------------


def large() -> Table:
    title = (
        f"{LARGE:,} agents, {LARGE * EACH:,} observations: {EVALUATIONS} evaluations of dec-fact-gp, {QUERIES} queries "
        "to dec-nn-rbcm"
    )
    table = Table(title, "hosted", "start", "an evaluation", "the queries", "rounds", "messages", "wire", "peak memory")
    table.start()
    same = set()
    for workers in (0, 2):
        command = [sys.executable, "-m", "benchmarks.fleets", str(LARGE), str(workers), str(EVALUATIONS)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        same.add((found["nll"], *found["mean"]))
        table.add("in process" if workers == 0 else f"Ray, {workers}", seconds(found["start"]),
                  seconds(found["training"] / EVALUATIONS), seconds(found["asking"]), found["rounds"],
                  f"{found['messages']:,}", readable_bytes(found["bytes"]),
                  " + ".join(readable_bytes(peak) for peak in found["peaks"]))  # fmt: skip
    table.note("start: checks, summaries, on Ray the workers and the data in its store, and a first evaluation.")
    table.note("An evaluation: every agent's likelihood, gradient and Hessian, and one reduction.")
    table.note("Peaks: of the calling process, and of each worker, which count what they share with the store.")
    table.note("The same likelihood and the same answers to the last bit." if len(same) == 1 else "The answers DIFFER.")
    return table


def field(agents: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Every agent in a unit square of its own, with what it has seen of a smooth field there."""
    rng, side, ids = np.random.default_rng(0), int(np.ceil(np.sqrt(agents))), np.arange(agents)
    inputs = np.stack([ids % side, ids // side], axis=1)[:, None] + rng.random((agents, EACH, 2))
    values = np.sin(2 * inputs[..., 0]) * np.cos(1.5 * inputs[..., 1]) + 0.1 * rng.standard_normal((agents, EACH))
    return list(zip(inputs, values, strict=True))


def peak(*_: object) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_large(agents: int, workers: int, evaluations: int) -> dict[str, Any]:
    """One large fleet, from its data to its answers."""
    shards, graph = field(agents), fg.Graph.grid(agents)
    began = time.perf_counter()
    where: dict[str, Any] = {"backend": "ray", "workers": workers} if workers else {}
    with fg.Fleet(shards, graph, **{"kernel": "se", "normalize": False, **where}) as fleet:
        fleet.train("dec-fact-gp", theta0=(1.0, 1.0, 0.6, 0.2), rounds=1)
        start = time.perf_counter() - began
        began = time.perf_counter()
        limit = {"rounds": evaluations} if evaluations else {}
        fit = fleet.train("dec-fact-gp", theta0=(1.0, 1.0, 0.6, 0.2), **limit)
        training = time.perf_counter() - began
        queries = np.random.default_rng(1).uniform(0.0, np.sqrt(agents) - 1.0, (QUERIES, 2))
        began = time.perf_counter()
        answer = fleet.predict(queries, "dec-nn-rbcm")
        asking = time.perf_counter() - began
        peaks = [peak()]
        if workers:
            by_value()
            peaks += fleet._backend.opened.crew.task(graph, peak, [()] * workers).finish()  # type: ignore[attr-defined]
    return {
        "start": start, "training": training, "status": fit.status, "evaluations": fit.rounds,
        "theta": fit.theta.tolist(), "cores": time.process_time(), "asking": asking,
        "rounds": fit.rounds + answer.rounds,
        "messages": fit.ledger.messages + answer.ledger.messages, "bytes": fit.ledger.bytes + answer.ledger.bytes,
        "nll": fit.nll, "mean": answer.mean.tolist(), "peaks": peaks,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run_large(*(int(word) for word in sys.argv[1:4]))))
