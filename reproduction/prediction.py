"""The paper's prediction experiment: every method on a sea-surface temperature field, or on a synthetic one.

What is run, in cells; what the paper concludes, against our numbers; the page.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

import fleetgp as fg
from fleetgp.arrays import Array
from fleetgp.errors import InputError, NumericalError
from fleetgp.io import load_sst
from fleetgp.metrics import coverage, nlpd, rmse
from fleetgp.prediction import prediction_method
from fleetgp.prediction.rules import AGGREGATIONS
from fleetgp.progress import Listener
from fleetgp.units import readable_bytes, readable_seconds
from reproduction.cells import REFUSED, Cell, Place, kept_in, refusals, run_cells
from reproduction.paper import FIVE, FLEETS, LEFT_OUT, NEAREST_ROUNDS, PREDICTORS, QUALITY, SOURCES, nearest
from reproduction.report import Finding, Report, Rows, above, averages, below, converged, grouped, mean_of, per_fleet

#: West, south, east, north of the paper's piece of the Atlantic, and its noise (a variance of 0.25).
BOX, NOISE = (-73.0, 36.4, -69.4, 40.0), 0.5
#: Where training starts, on the unit square, in kelvin.
START = (0.2, 0.2, 4.0, 1.0)
#: The paper trains for 100 rounds. One fleet's hyperparameters serve all, so that fleets differ in predicting only.
TRAINING_ROUNDS, TRAINING_FLEET = 100, 10
#: NPAE's iterations end here; `status` says so. On a path its last average alone needs more: `npae_rounds`.
NPAE_ROUNDS = 1000
#: Methods that the paper does not, or not only, run on a path.
GRAPHS = {"dec-npae": ("complete",), "dec-npae-star": ("path", "complete")}
#: Not the paper's: exact, by sums along the spanning tree of the path instead of its averages. Their graph is `TREE`.
OURS, TREE = ("dec-full-gp", "dec-nn-grbcm"), "tree"
#: (method, graph) of every row, in the order of the tables.
WAYS = (
    *((method, graph) for method in PREDICTORS for graph in GRAPHS.get(method, ("path",))),
    *((method, TREE) for method in OURS),
)
#: What replications have in common.
GROUPS = ("method", "graph", "agents")
#: The synthetic stand-in has a spread and length-scales like the sea's.
STAND_IN = (0.15, 0.08, 4.0, NOISE)


@dataclass(frozen=True)
class Plan:
    """sst: a NetCDF file of the field, or empty for a synthetic one."""

    sst: str = ""
    observations: int = 20_000
    fleets: tuple[int, ...] = FLEETS
    replications: int = 15
    queries: int = 100
    seed: int = 0

    @classmethod
    def quick(cls, sst: str = "") -> Plan:
        return cls(sst, 2_000, (4, 10), 2, 100)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sst": Path(self.sst).name}


@dataclass(frozen=True)
class Sea:
    """Places on the unit square (N, 2), temperatures (N,), and what they are."""

    places: Array
    values: Array
    product: str


@lru_cache(maxsize=2)
def sea(sst: str) -> Sea:
    """The field on the unit square."""
    if not sst:
        field = fg.synthetic_field(129_600, STAND_IN, seed=5, box=(0.0, 1.0), inputs="grid")
        return Sea(
            field.inputs, 290.0 + field.truth, "a synthetic field (no file was given), not sea-surface temperature"
        )
    grid = load_sst(sst, box=BOX)
    places, celsius = grid.points()
    if len(places) < 30_000:
        raise InputError(f"{sst}: the paper's box has {len(places)} known temperatures, too few for the experiment")
    corner, width = np.array(BOX[:2]), np.array([BOX[2] - BOX[0], BOX[3] - BOX[1]])
    day = f", {grid.date}" if grid.date else ""
    return Sea((places - corner) / width, celsius + 273.15, f"{grid.product}{day}")


def draw_replication(plan: dict[str, Any], replication: int) -> tuple[Array, Array, Array, Array, Array]:
    """Inputs and noisy observations; queries, their noise-free values, and noisy ones."""
    field = sea(plan["sst"])
    rng = np.random.default_rng([plan["seed"], replication])
    chosen = rng.permutation(len(field.values))[: plan["observations"] + plan["queries"]]
    noisy = field.values[chosen] + NOISE * rng.standard_normal(len(chosen))
    seen, asked = slice(None, plan["observations"]), slice(plan["observations"], None)
    places = field.places[chosen]
    return places[seen], noisy[seen], places[asked], field.values[chosen[asked]], noisy[asked]


def train(task: dict[str, Any]) -> dict[str, Any]:
    """Train by dec-gapx-gp, on the first replication."""
    inputs, observations, *_ = draw_replication(task, 0)
    fleet = fg.Fleet(fg.partition(inputs, observations, agents=task["agents"]), "path", normalize=True, kernel="se")
    began = time.process_time()
    fit = fleet.train("dec-gapx-gp", theta0=START, rounds=TRAINING_ROUNDS)
    return {
        "agents": task["agents"],
        "theta": fit.theta.tolist(),
        "status": fit.status,
        "rounds": fit.rounds,
        "disagreement": fit.disagreement,
        "seconds": time.process_time() - began,
    }


def cells(plan: Plan, theta: list[float]) -> list[Cell]:
    """All methods for one fleet and one replication."""
    task = {**asdict(plan), "fleets": None}
    return [
        Cell(
            f"predict-{agents}-{replication}",
            {**task, "agents": agents, "replication": replication, "theta": theta},
            float(agents) ** 1.5,
        )
        for agents in plan.fleets
        for replication in range(plan.replications)
    ]


def npae_rounds(method: str, graph: str, agents: int) -> int:
    """How long NPAE may take: averaging over a path of M agents takes some 5 M^2 rounds."""
    return max(NPAE_ROUNDS, 5 * agents**2) if (method, graph) == ("dec-npae-star", "path") else NPAE_ROUNDS


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Every method once. One of ours that refuses says why in its row, and the others go on."""
    inputs, observations, queries, truth, noisy = draw_replication(task, task["replication"])
    shards = fg.partition(inputs, observations, agents=task["agents"])
    fleets = {
        graph: fg.Fleet(shards, graph, theta=task["theta"], normalize=True, kernel="se")
        for graph in ("path", "complete")
    }
    fleets[TREE] = fleets["path"]
    rows: list[dict[str, Any]] = []
    central: dict[str, fg.Prediction] = {}
    noise = task["theta"][-1] ** 2
    for method, graph in WAYS:
        row = prediction_method(method)
        rows.append(
            {
                "method": method,
                "graph": graph if row.decentralized else "server",
                "agents": task["agents"],
                "replication": task["replication"],
            }
        )
        began = time.process_time()
        try:
            # Conditioned afresh, each method computes and sends all that it needs.
            answer = fleets[graph].condition().predict(queries, method, **options(method, graph, task["agents"]))
        except NumericalError as refusal:
            if graph != TREE:
                raise
            rows[-1] |= {"status": REFUSED, "why": str(refusal)}
            continue
        seconds = time.process_time() - began
        if not row.decentralized:
            central[row.rule] = answer
        rows[-1] |= {
            "rmse": rmse(answer.mean, truth),
            "nlpd": nlpd(answer.mean, answer.variance, truth),
            "nlpd_noisy": nlpd(answer.mean, answer.variance + noise, noisy),
            "coverage": coverage(answer.mean, answer.variance, truth),
            "off_central": rmse(answer.mean, central[row.rule].mean),
            "participants": float(answer.participants.sum(axis=0).mean()),
            "rounds": float(answer.query_rounds.mean()),
            "solver_rounds": float(answer.solver_rounds.mean()),
            "ledger_rounds": answer.ledger.rounds,
            "status": answer.status,
            "jitter": answer.jitter,
            "seconds": seconds,
            "scalars": answer.ledger.scalars,
            "bytes": answer.ledger.bytes,
        }
    return {"rows": rows}


def options(method: str, graph: str, agents: int) -> dict[str, Any]:
    """The paper's averages, with as many rounds as they may take, or exact sums along the tree; grBCM's first agent has
    beta = 1, as in the paper.
    """
    row = prediction_method(method)
    if graph == TREE:
        return row.those_of(beta="paper")
    rounds = npae_rounds(method, graph, agents) if row.rule == "npae" else 20_000
    return row.those_of(consensus="average", rounds=rounds, beta="paper")


def reproduce(plan: Plan, folder: Path, listener: Listener | None = None, place: Place | None = None) -> Report:
    """Run what is not kept yet, and write the page."""
    content = hashlib.sha256(sea(plan.sst).values.tobytes()).hexdigest()  # a file that will not do is refused here
    facts = {**plan.as_dict(), "replications": None, "fleets": None, "sst": content, "npae": NPAE_ROUNDS, "ours": OURS}
    kept = kept_in(folder, "prediction", facts)
    first = [Cell(f"theta-{TRAINING_FLEET}", {**asdict(plan), "fleets": None, "agents": TRAINING_FLEET})]
    (fit,) = run_cells(first, train, kept, listener=listener, label="hyperparameters", place=place).values()
    rest = cells(plan, fit["theta"])
    results = run_cells(rest, run, kept, listener=listener, label="predictions", place=place)
    return write_page(plan, fit, [row for result in results.values() for row in result["rows"]], folder)


def answered(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The replications that were not refused."""
    return [row for row in rows if row["status"] != REFUSED]


# ---- findings ----------------------------------------------------------------------------------------------

#: RMSE of two methods with the same mean, in kelvin: rounding alone.
SAME = 1e-6
#: poe is overconfident if its 95 % intervals hold fewer of the truths than this.
OVERCONFIDENT = 0.9
#: A mean this close to its server method's, in kelvin, equals it: a five-hundredth of the noise.
EQUAL = 1e-3
#: A relative change of the RMSE that is no loss.
LOSS = 0.01
#: Shares of agents left out that are like the paper's 42.5 %.
LIKE_LEFT_OUT = (0.3, 0.6)
#: Of five, the best two have 0 or 1 methods before them, the worst two 3 or 4.
AMONG_THE_BEST, AMONG_THE_WORST = 1.5, 2.5
#: Kelvin off npae that are a high error: a tenth of the noise.
HIGH = 0.05
#: Rounds up to so many times the paper's count as the same.
ROUNDS_FACTOR = 2.0


def findings(plan: Plan, rows: Rows) -> list[Finding]:
    """One per claim of the paper, in the order of the page."""
    claims = (same_mean, decentralized_equals, left_out, best_nlpd, npae_star, dale, few_rounds)
    return [judge(plan, rows) for judge in claims]


def by_fleet(plan: Plan, rows: Rows, method: str, graph: str, what: str) -> dict[int, float]:
    """M -> the average of a quantity over replications."""
    return {agents: mean_of(rows[method, graph, agents], what) for agents in plan.fleets}


def _mean(values: Mapping[int, float]) -> float:
    return float(np.mean(list(values.values())))


def same_mean(plan: Plan, rows: Rows) -> Finding:
    off = max(
        abs(a["rmse"] - b["rmse"])
        for m in plan.fleets
        for a, b in zip(rows["poe", "server", m], rows["gpoe", "server", m], strict=True)
    )
    covered = by_fleet(plan, rows, "poe", "server", "coverage")
    smallest, largest = plan.fleets[0], plan.fleets[-1]
    alike = f"Their RMSE differ by {off:.0e} at most" if off else "Their RMSE are the same"
    return Finding(
        "poe and gpoe have the same mean; poe is overconfident, more so for large fleets.",
        f"{alike}. poe's 95 % intervals hold {per_fleet(covered, '.0%')} of the truths.",
        core=[below("difference of RMSE", off, SAME)],
        checks=[
            below("coverage of the largest fleet", covered[largest], OVERCONFIDENT),
            below("coverage of the largest fleet, against the smallest's", covered[largest], covered[smallest]),
        ],
    )


def decentralized_equals(plan: Plan, rows: Rows) -> Finding:
    methods = [f"dec-{rule}" for rule in AGGREGATIONS]
    off = {method: max(by_fleet(plan, rows, method, "path", "off_central").values()) for method in methods}
    return Finding(
        "dec-poe, dec-gpoe, dec-bcm, dec-rbcm and dec-grbcm equal their server methods.",
        "Root mean square difference of the means, at most: "
        + ", ".join(f"{method} {value:.0e} K" for method, value in off.items())
        + ".",
        [below("largest difference", max(off.values()), EQUAL)],
    )


def left_out(plan: Plan, rows: Rows) -> Finding:
    participants = by_fleet(plan, rows, "dec-nn-rbcm", "path", "participants")
    dropped = {m: 1.0 - count / m for m, count in participants.items()}
    change = {}
    for rule in AGGREGATIONS:
        nearest_agents, all_agents = (
            by_fleet(plan, rows, f"{kind}{rule}", "path", "rmse") for kind in ("dec-nn-", "dec-")
        )
        change[rule] = [nearest_agents[m] / all_agents[m] - 1.0 for m in plan.fleets]
    gain = (
        " Where poe and gpoe gain it is because agents that know nothing of a point pull a product of experts to the "
        "prior."
    )
    return Finding(
        f"Nearest neighbours leave out {LEFT_OUT:.1%} of the agents, without loss.",
        f"Left out: {per_fleet(dropped, '.0%')}, {_mean(dropped):.0%} on average. RMSE changes by "
        + "; ".join(f"{rule} {min(values):+.1%} to {max(values):+.1%}" for rule, values in change.items())
        + "."
        + (gain if min(change["poe"] + change["gpoe"]) < -LOSS else ""),
        core=[below("largest relative increase of the RMSE", max(map(max, change.values())), LOSS)],
        checks=[
            above("share left out", _mean(dropped), LIKE_LEFT_OUT[0]),
            below("share left out", _mean(dropped), LIKE_LEFT_OUT[1]),
        ],
    )


def best_nlpd(plan: Plan, rows: Rows) -> Finding:
    def ranking(what: str) -> list[tuple[float, str]]:
        return sorted((_mean(by_fleet(plan, rows, method, "path", what)), method) for method in FIVE)

    def listed(ranked: list[tuple[float, str]]) -> str:
        return ", ".join(f"{method} {value:.2f}" for value, method in ranked)

    order = ranking("nlpd")
    better = {method: place for place, (_, method) in enumerate(order)}
    exact = mean_of(rows["full-gp", "server", plan.fleets[0]], "nlpd")
    unsure = (
        ": where one stationary kernel does not fit the field, as at an ocean front, whoever is less sure is better"
    )
    return Finding(
        "dec-nn-grbcm and dec-npae-star are the best in NLPD of the five; dec-nn-rbcm is bad.",
        f"NLPD, average over fleets: {listed(order)}. Of noisy observations: {listed(ranking('nlpd_noisy'))}. "
        f"The exact GP has {exact:.2f}{unsure if exact > order[0][0] else ''}.",
        [
            below("methods better than dec-nn-grbcm", better["dec-nn-grbcm"], AMONG_THE_BEST),
            below("methods better than dec-npae-star", better["dec-npae-star"], AMONG_THE_BEST),
            above("methods better than dec-nn-rbcm", better["dec-nn-rbcm"], AMONG_THE_WORST),
        ],
    )


def npae_star(plan: Plan, rows: Rows) -> Finding:
    star, plain = (by_fleet(plan, rows, method, "complete", "off_central") for method in ("dec-npae-star", "dec-npae"))
    errors = {method: by_fleet(plan, rows, method, "path", "rmse") for method in FIVE}
    best = {m: min((errors[method][m], method) for method in FIVE)[1] for m in plan.fleets}
    behind = max(
        errors["dec-npae-star"][m] / min(errors[method][m] for method in FIVE if method != "dec-npae-star")
        for m in plan.fleets
    )
    return Finding(
        "dec-npae-star has a smaller error than dec-npae, and is the most accurate of the five.",
        "Root mean square difference to npae, complete graph: "
        + ", ".join(f"{star[m]:.1g} against {plain[m]:.1g} K (M = {m})" for m in plan.fleets)
        + f", after at most {NPAE_ROUNDS:,} iterations. Of the five, on a path, the smallest RMSE: {per_fleet(best)}.",
        core=[below("difference to npae, average, against dec-npae's", _mean(star), _mean(plain))],
        checks=[below("RMSE over the smallest of the others, in the worst fleet", behind, 1.0)],
    )


def dale(plan: Plan, rows: Rows) -> Finding:
    off = by_fleet(plan, rows, "dec-nn-npae", "path", "off_central")
    done = sum(row["status"] == "converged" for m in plan.fleets for row in rows["dec-nn-npae", "path", m])
    seconds = {method: _mean(by_fleet(plan, rows, method, "path", "seconds")) for method in FIVE}
    slowest = max(seconds, key=lambda method: seconds[method])
    own = seconds.pop("dec-nn-npae")
    return Finding(
        "dec-nn-npae has a high approximation error and is the slowest.",
        f"Off npae by {', '.join(f'{value:.2f} K (M = {m})' for m, value in off.items())}; {done} runs converged "
        f"within {NPAE_ROUNDS:,} rounds. The slowest of the five: {slowest}.",
        core=[above("largest difference to npae", max(off.values()), HIGH)],
        checks=[above("time over the longest of the others", own / max(seconds.values()), 1.0)],
    )


def few_rounds(plan: Plan, rows: Rows) -> Finding:
    rounds = by_fleet(plan, rows, "dec-nn-grbcm", "path", "rounds")
    fewest, most = NEAREST_ROUNDS
    return Finding(
        f"The dec-nn- methods need {fewest:g} to {most:g} rounds on a path.",
        f"dec-nn-grbcm needs {per_fleet(rounds, ',.0f')} to a relative tolerance of 1e-6. Fewer than the diameter of "
        "the participants' path cannot be: no agent can average what it has not heard of.",
        [below(f"rounds of {m} agents", value, ROUNDS_FACTOR * most) for m, value in rounds.items()],
    )


# ---- the page ----------------------------------------------------------------------------------------------


def write_page(plan: Plan, fit: Mapping[str, Any], results: Sequence[dict[str, Any]], folder: Path) -> Report:
    """Write the whole page, and results.csv and results.json beside it."""
    from reproduction import figures  # workers of a cluster need no Matplotlib

    report = Report("The paper's prediction experiment, reproduced", folder)
    rows, field = grouped(results, *GROUPS), sea(plan.sst)
    report.facts |= {"product": field.product, "training": dict(fit)}
    report.text(
        f"Data: {field.product}. " + (ABOUT_SEA if plan.sst else ABOUT_STAND_IN),
        f"{plan.observations:,} observations with noise of variance 0.25, in stripes over fleets of "
        f"{', '.join(map(str, plan.fleets))} on a path; {plan.queries} unseen points; {plan.replications} "
        "replications (other observations, noise and points). Places are scaled to [0, 1]^2; the observations "
        "are centred and scaled by consensus.",
        "RMSE and NLPD are of the field itself at the unseen points, without noise, by the variance of f. "
        "NLPD y is of noisy observations there. Times are CPU seconds of the whole simulated fleet for all points, "
        "on one core, divided by M. Rounds are the average over points, of averaging (or DALE) and, after the plus, "
        "iterations of JOR, each of which is a flood.",
        "The last rows of the tables of accuracy are not the paper's: where the graph is the tree, sums are exact, "
        "along the spanning tree of the path.",
    )
    report.heading("Where we agree with the paper, and where not")
    report.findings(findings(plan, rows))
    report.heading("Hyperparameters")
    report.table(
        f"By dec-gapx-gp with our default steps and at most {TRAINING_ROUNDS} rounds, as in the paper: once, on the "
        f"first replication's data, by {TRAINING_FLEET} agents. All fleets use them, so that they differ in predicting "
        "only",
        ("M", "l_1", "l_2", "sigma_f (K)", "sigma_eps (K)", "rounds", "status", "agents differ by", "time per agent"),
        [
            (
                fit["agents"],
                *(f"{value:.3f}" for value in fit["theta"]),
                fit["rounds"],
                fit["status"],
                f"{fit['disagreement']:.0e}",
                readable_seconds(fit["seconds"] / fit["agents"]),
            )
        ],
    )
    with figures.style():
        report.heading("Accuracy and uncertainty")
        report.figure(
            "families",
            figures.family_figure(plan.fleets, rows, field.product),
            f"Average RMSE and NLPD over {plan.replications} replications. Data: {field.product}. The paper has these "
            "in Figures 11 to 14 (drawn, not tabulated). Grey: the exact GP of all data.",
        )
        for agents in plan.fleets:
            report.table(f"M = {agents}", *accuracy_table(rows, agents), left=2)
        report.heading("Nearest neighbours")
        report.table(f"Paper: {SOURCES['nearest']}.", *_nearest_table(plan, rows), left=2)
        report.heading("The five-method comparison")
        report.figure(
            "five",
            figures.five_figure(plan.fleets, rows, field.product),
            "The paper's five best decentralized methods on a path: accuracy, uncertainty, rounds and time per "
            f"agent. Data: {field.product}. The paper has this in Figure 15.",
        )
        report.table(
            f"The paper's own judgement: {SOURCES['quality']}.",
            ("method", "RMSE", "NLPD", "communication", "scalable"),
            [(method, *words) for method, words in QUALITY.items()],
            left=5,
        )
        report.heading("Not the paper's: exact, along the tree")
        report.text(*about_tree(rows))
        report.table(
            "Rounds and bytes are of everything that is sent for the answers to all points, first meetings included: "
            "scaling, samples or moments, and who takes part",
            *_tree_table(plan, rows),
            left=3,
        )
        report.heading("The data")
        inputs, observations, *_ = draw_replication({**plan.as_dict(), "sst": plan.sst}, 0)
        shards = fg.partition(inputs, observations, agents=10)
        report.figure(
            "data",
            figures.data_figure(field.places, field.values, shards, field.product, of_the_sea=bool(plan.sst)),
            f"Left: the field ({field.product}). Right: the observations of each agent, M = 10.",
        )
    report.write(results, {**plan.as_dict(), "noise": NOISE, "box": BOX, "product": field.product})
    return report


ABOUT_SEA = (
    "The box is the paper's, 73.0 to 69.4 W, 36.4 to 40.0 N in the Atlantic. The paper uses MUR v4.1 of a day that "
    "it does not name; another product or day has other values, so what is compared is the order of the methods."
)
ABOUT_STAND_IN = (
    "It is drawn with length-scales and a spread like those of the sea; the paper's numbers are not "
    "comparable. Give a NetCDF file that covers 73.0 to 69.4 W, 36.4 to 40.0 N for the real thing."
)


def accuracy_table(rows: Rows, agents: int) -> tuple[list[str], list[list[str]]]:
    columns = ["method", "graph", "RMSE (K)", "NLPD", "NLPD y", "95 % cover", "off its server method (K)",
               "agents", "rounds", "converged", "time per agent", "sent per agent"]  # fmt: skip
    lines = []
    for (method, graph, fleet), replications in rows.items():
        if fleet != agents:
            continue
        decentralized = method.startswith("dec-")
        group = answered(replications)
        if not group:
            lines.append([method, graph, REFUSED, *[""] * 6, converged(replications), "", ""])
            continue
        off, rounds, solving = averages(group, off_central=".1g", rounds=",.0f", solver_rounds=",.0f")
        rounds += f" + {solving}" if mean_of(group, "solver_rounds") else ""
        accuracy = averages(group, rmse=".3f", nlpd=".2f", nlpd_noisy=".2f", coverage=".0%")
        took_part, own = averages(group, participants=".1f"), (off, rounds) if decentralized else ("", "")
        cost = [readable_seconds(mean_of(group, "seconds") / agents), f"{mean_of(group, 'scalars') / agents:,.0f}"]
        lines.append([method, graph, *accuracy, own[0], *took_part, own[1], converged(replications), *cost])
    return columns, lines


def _nearest_table(plan: Plan, rows: Rows) -> tuple[list[str], list[list[str]]]:
    columns = ["M", "method", "took part", "paper's", "time per agent", "paper's", "rounds", "paper's", "converged"]
    lines = []
    for agents in plan.fleets:
        for method in PREDICTORS:
            group = rows.get((method, "path", agents))
            if not method.startswith("dec-nn-") or group is None:
                continue
            paper = nearest(method, agents)
            participants = [row["participants"] for row in group]
            took_part = f"{np.mean(participants):.1f} ± {np.std(participants):.1f}"
            seconds, rounds = readable_seconds(mean_of(group, "seconds") / agents), mean_of(group, "rounds")
            theirs = ["", "", ""]
            if paper:
                mean, std = paper.participants
                theirs = [f"{mean} ± {std}", readable_seconds(paper.seconds), f"{paper.rounds:,}"]
            pairs = zip((took_part, seconds, f"{rounds:,.1f}"), theirs, strict=True)
            lines.append([str(agents), method, *chain.from_iterable(pairs), converged(group)])
    return columns, lines


def about_tree(rows: Rows) -> list[str]:
    ours = [row for (_, graph, _), group in rows.items() if graph == TREE for row in group]
    off = [row["off_central"] for row in answered(ours) if row["method"] == "dec-full-gp"]
    texts = [
        "dec-full-gp adds up moments of the agents' data once, and then every agent answers alone, without a round. "
        "dec-nn-grbcm adds up the same summands as the paper's, in one reduction up and down the tree instead of an "
        "average."
    ]
    if off:
        exact = "is the exact GP of all data" if max(off) < SAME else "differs from the exact GP of all data"
        texts.append(f"dec-full-gp {exact}: root mean square difference of the means, at most {max(off):.0e} K.")
    return texts + refusals(ours)


def _tree_table(plan: Plan, rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Each of ours, after what it is to be compared with."""
    columns = ["M", "method", "sums by", "RMSE (K)", "NLPD", "rounds", "sent per agent", "time per agent"]
    beside = {"dec-full-gp": ("full-gp", "server")}
    ways = [way for method in OURS for way in (beside.get(method, (method, "path")), (method, TREE))]
    by = {"server": "a server", "path": "averages", TREE: "the tree (ours)"}
    lines = []
    for agents in plan.fleets:
        for method, graph in ways:
            if group := answered(rows.get((method, graph, agents), ())):
                sent, seconds = mean_of(group, "bytes") / agents, mean_of(group, "seconds") / agents
                numbers = averages(group, rmse=".3f", nlpd=".2f", ledger_rounds=",.0f")
                cost = [readable_bytes(round(sent)), readable_seconds(seconds)]
                lines.append([str(agents), method, by[graph], *numbers, *cost])
    return columns, lines
