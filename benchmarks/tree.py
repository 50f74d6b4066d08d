"""Exact sums along the tree beside the paper's recursions: predictions and trainings, in one run."""

from __future__ import annotations

import numpy as np

import fleetgp as fg
from benchmarks.timing import Table, once, seconds
from fleetgp.units import readable_bytes

THETA = (1.2, 0.3, 1.3, 0.1)
THETA0 = (2.0, 0.5, 1.0, 1.0)
RULES = ("poe", "gpoe", "bcm", "rbcm", "grbcm")


def fleet_of(points: int, agents: int, **options: object) -> fg.Fleet:
    field = fg.synthetic_field(points)
    return fg.Fleet(
        fg.partition(field.inputs, field.observations, agents=agents),
        "path",
        **{"kernel": "se", "normalize": False, **options},
    )  # type: ignore[arg-type]


def tree_prediction() -> Table:
    """Every dec- aggregation on a path of 40 against its central twin, and the paper's averages of the same."""
    table = Table("Predictions on a path of 40, N = 8,100, 100 queries: along the tree, and the paper's recursions",
                  "method", "rounds", "wire", "/ central", "off central", "paper: rounds", "paper: wire",
                  "paper: off central", "one asker: wire")  # fmt: skip
    table.start()
    fleet = fleet_of(8100, 40, theta=THETA)
    queries = np.random.default_rng(1).uniform(0, 2, (100, 2))
    conditioned = fleet.condition()
    for rule in (*RULES, "npae"):
        central = fleet.condition().predict(queries, rule)
        for method in [m for m in fg.PREDICTION_METHODS if m in (f"dec-{rule}", f"dec-{rule}-star", f"dec-nn-{rule}")]:
            tree = fleet.condition().predict(queries, method)
            limit = {"rounds": 200} if rule == "npae" else {}
            paper = conditioned.predict(queries, method, consensus="average", **limit)
            one = conditioned.predict(queries, method, agent=39)
            table.add(method, tree.rounds, readable_bytes(tree.ledger.bytes),
                      f"{tree.ledger.bytes / central.ledger.bytes:.2f}", off(tree, central),
                      f"{paper.rounds}{'' if paper.status == 'converged' else '*'}", readable_bytes(paper.ledger.bytes),
                      off(paper, central), readable_bytes(one.ledger.bytes))  # fmt: skip
    table.note("off central: the largest difference of a mean, in standard deviations. With dec-nn- the central method "
               "has all agents take part, so that is what leaving out the uncorrelated ones does. "
               "*: not converged; NPAE by JOR and DALE gets 200 rounds.")  # fmt: skip
    table.note(
        "wire: with all that was agreed before (samples, boxes); one asker: without, and to the last agent alone."
    )
    return table


def off(out: fg.Prediction, central: fg.Prediction) -> str:
    return f"{np.abs((out.means - central.mean) / np.sqrt(central.variance)).max():.0e}"


def tree_training() -> Table:
    """The exact trainers beside the paper's and their central twins."""
    table = Table("Trainings along the tree, default starts", "method", "N", "M", "time", "rounds", "wire",
                  "off its twin", "evaluations per start", "status")  # fmt: skip
    table.start()
    twins = {"dec-fact-gp": "fact-gp", "dec-g-fact-gp": "g-fact-gp", "dec-full-gp": "full-gp", "dec-apx-gp": "fact-gp"}
    for points, agents, methods in (
        (1000, 10, tuple(twins)),
        (8100, 10, tuple(twins)),
        (8100, 40, tuple(twins)),
        (32400, 40, ("dec-full-gp",)),
    ):
        for method in methods:
            fits, times = {}, {}
            for name in (method, twins[method]):
                fleet = fleet_of(points, agents)
                times[name] = once(lambda f=fleet, n=name: f.train(n))
                fits[name] = fleet.last_fit
            fit, twin = fits[method], fits[twins[method]]
            apart = np.abs(np.log(fit.theta / twin.theta)).max()
            starts = ", ".join(str(start.rounds) for start in fit.starts)
            table.add(method, points, agents, f"{seconds(times[method])} ({seconds(times[twins[method]])})",
                      sum(fit.ledger.rounds_by_phase.values()), readable_bytes(fit.ledger.bytes), f"{apart:.0e}",
                      starts, fit.status)  # fmt: skip
    table.note("off its twin: the largest difference in log theta to the central method, whose time is in brackets.")
    return table
