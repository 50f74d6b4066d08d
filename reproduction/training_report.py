"""The training experiment as tables, figures and findings, beside the paper's own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

import fleetgp as fg
from fleetgp.units import readable_bytes, readable_seconds
from reproduction import training
from reproduction.cells import REFUSED, refusals
from reproduction.paper import SOURCES, TRAINERS, trained
from reproduction.report import STYLE, Report
from reproduction.training import BLOCKS, OURS, PARAMETERS, TREE, TRUTH, Groups, TrainingPlan, groups
from reproduction.training_figures import field_figure, hyperparameter_figure, length_scale_figure
from reproduction.training_findings import training_findings


def write(plan: TrainingPlan, results: Sequence[Mapping[str, Any]], folder: Path, remark: str = "") -> Report:
    """The whole page; results.csv and results.json beside it. remark: of results that are not of one run."""
    rows = [dict(row) for row in results]
    report = Report("The paper's training experiment, reproduced", folder)
    blocks = {block: groups(rows, block) for block in BLOCKS}
    report.text(
        f"Fields drawn from a Gaussian process with (l_1, l_2, sigma_f, sigma_eps) = {TRUTH} on [0, 2]^2, split into "
        f"stripes over fleets on a path. Every method starts at {fg.PAPER_THETA0}. N = "
        f"{', '.join(f'{n:,}' for n in plan.sizes)}; M = {', '.join(map(str, plan.fleets))}; {plan.replications} "
        "replications (seeds of the field, its places and its noise).",
        "Times are CPU seconds of one agent: those of the whole simulated fleet, on one core, divided by M. The "
        "paper's are of MATLAB on another machine with dense covariances; ours use the moments engine where it "
        "is certified. They show what is possible, not that one machine is faster than another.",
    )
    report.remark(remark)
    report.heading("Where we agree with the paper, and where not")
    with mpl.rc_context(STYLE):
        report.findings(training_findings(plan, blocks))
        report.figure(
            "length_scale",
            length_scale_figure(plan, blocks),
            "The length-scale l_1, across the stripes, as the fleet grows: the median over replications, and the "
            "range of the middle half. Left: the paper's settings. Right: our defaults, run to convergence.",
        )
        for block, title in BLOCKS.items():
            report.heading(f"{title}: time and rounds")
            report.text(*_remarks(block, plan))
            for size in plan.sizes:
                report.table(
                    f"N = {size:,}. Paper: {SOURCES['training']}.", *_time_table(plan, blocks[block], size), left=2
                )
            report.heading(f"{title}: the hyperparameters")
            for size in plan.sizes:
                report.figure(
                    f"hyperparameters_{block}_{size}",
                    hyperparameter_figure(plan, blocks[block], size),
                    f"{title}, N = {size:,}: the estimates of every method and fleet size; the truth is dashed. Blue: "
                    "known before the paper; vermilion: proposed by it. Boxes: quartiles; whiskers: the range; single "
                    f"replications are dots. The paper has this in {SOURCES['hyperparameters']}.",
                )
                report.table(
                    f"N = {size:,}: median estimates, and in brackets the median distance from the truth",
                    *_accuracy_table(plan, blocks[block], size),
                    left=2,
                )
        _write_ours(report, plan, rows)
        report.heading("The data")
        report.figure(
            "fields",
            field_figure(plan),
            "Five of the fields (the first seeds), as in the paper's Figure 7.",
        )
    report.write(rows, {**plan.as_dict(), "theta": TRUTH, "theta0": fg.PAPER_THETA0, **training.constants()})
    return report


def _remarks(block: str, plan: TrainingPlan) -> list[str]:
    if block == "default":
        return [
            "Automatic penalties and steps, tolerance 1e-5, stopping by consensus, at most 2,000 rounds. full-gp, "
            "fact-gp and g-fact-gp have no settings and are those of the first block. Because these runs go on "
            f"to convergence they have {plan.default_replications} replications for fleets up to {plan.small}, "
            "one for larger fleets (of the smaller N only), and c-gp and dec-c-gp for M = 4 only: their nested "
            "solver takes some twenty likelihoods a round to reach what apx-gp and dec-apx-gp reach with one."
        ]
    return [
        f"rho = {training.RHO:g}, L = kappa = {training.STIFFNESS:g}, {training.ROUNDS} rounds for the dec- "
        f"methods, the rule |theta_i - z| < {training.TOL:g} for the others (at most {training.MOST} rounds; c-gp "
        f"{training.ROUNDS}), gradient descent with step 1e-5 and {training.NESTED} steps a round for c-gp and "
        "dec-c-gp (the paper does not "
        "say how many). full-gp, fact-gp and g-fact-gp are minimized by L-BFGS; the paper's needs more rounds.",
        "A dash is a case that the paper leaves out, as too slow or over its limit of 3,000 s.",
        "† With N_i points the likelihood's curvature in log sigma_eps is 2 N_i; a step of stiffness L + rho is "
        f"unstable above twice that. With L = {training.STIFFNESS:g} this forbids N_i (augmented data counted) "
        f"beyond some {training.STABLE:,}, as of N = 32,400 with M = 4. There rho, L and kappa are multiplied by "
        f"N_i / {training.REFERENCE:,}. The paper reports such cases with the same constants and does not say how.",
    ]


def _time_table(plan: TrainingPlan, found: Groups, size: int) -> tuple[list[str], list[list[str]]]:
    columns = ["M", "method", "time per agent", "paper's", "rounds", "paper's", "converged", "sent per agent"]
    rows = []
    for agents, method in _order(plan, found, size):
        group = found.get((size, agents, method))
        theirs = trained(method, size, agents)
        theirs_time = f"{theirs.seconds:,.1f} s" if theirs.seconds is not None else theirs.why.split(" by ")[0]
        theirs_rounds = "" if theirs.rounds is None else f"{theirs.rounds:g}"
        label = "" if method == "full-gp" else str(agents)
        if group is None:
            rows.append([label, method, "–", theirs_time, "–", theirs_rounds, "–", "–"])
            continue
        star = "†" if group.scaled != 1.0 else ""
        sent = np.mean([sum(v for k, v in row["scalars"].items() if k != "framing") for row in group.rows]) / agents
        rows.append(
            [
                label,
                method + star,
                readable_seconds(group.seconds_per_agent),
                theirs_time,
                f"{group.rounds:.1f}",
                theirs_rounds,
                f"{group.converged} of {len(group.rows)}",
                f"{sent:,.0f} numbers",
            ]
        )
    return columns, rows


def _accuracy_table(plan: TrainingPlan, found: Groups, size: int) -> tuple[list[str], list[list[str]]]:
    rows = []
    for agents, method in _order(plan, found, size):
        group = found.get((size, agents, method))
        if group is None:
            continue
        middle = np.median(group.thetas, axis=0)
        apart = max(row["disagreement"] for row in group.rows)
        rows.append(
            [
                "" if method == "full-gp" else str(agents),
                method + ("†" if group.scaled != 1.0 else ""),
                *(f"{value:.3f} ({group.off(j):.0%})" for j, value in enumerate(middle)),
                f"{apart:.0e}" if apart else "",
            ]
        )
    return [
        "M",
        "method",
        *(f"{name} = {value:g}" for name, value in zip(PARAMETERS, TRUTH, strict=True)),
        "apart",
    ], rows


def _order(plan: TrainingPlan, found: Groups, size: int) -> list[tuple[int, str]]:
    return [(1, "full-gp")] + [(agents, method) for agents in plan.fleets for method in TRAINERS[1:]]


def _write_ours(report: Report, plan: TrainingPlan, rows: Sequence[dict[str, Any]]) -> None:
    found = groups(rows, TREE)
    report.heading("Not the paper's: exact, along the tree")
    report.text(
        "Our own methods, with their defaults: sums along the spanning tree of the path, so that an optimum is found "
        "and not approached. dec-fact-gp and dec-g-fact-gp minimize the sum of the agents' likelihoods by Newton's "
        "method; dec-full-gp adds up moments of all data once, and every agent trains alone with them. Each has "
        f"{plan.default_replications} replications, the first seeds.",
        *refusals([row for row in rows if row["block"] == TREE]),
    )
    for size in plan.sizes:
        report.table(
            f"N = {size:,}: median estimates. off: the largest difference of log theta to the server method's, of the "
            "same data. Evaluations are of the likelihood, rounds those of the network",
            *_tree_table(plan, found, size),
            left=2,
        )


def _tree_table(plan: TrainingPlan, found: Groups, size: int) -> tuple[list[str], list[list[str]]]:
    columns = ["M", "method", *PARAMETERS, "off", "of", "evaluations", "rounds", "converged", "time per agent",
               "sent per agent"]  # fmt: skip
    rows = []
    for agents in plan.fleets:
        for method, server in OURS.items():
            group = found.get((size, agents, method))
            if group is None:
                continue
            fits = [row for row in group.rows if row["status"] != REFUSED]
            done = f"{group.converged} of {len(group.rows)}"
            if not fits:
                rows.append([str(agents), method, REFUSED, *[""] * 7, done, "", ""])
                continue
            twin = found[size, 1 if server == "full-gp" else agents, server]
            theirs = {row["seed"]: row["theta"] for row in twin.rows}
            off = max(float(np.abs(np.log(np.divide(row["theta"], theirs[row["seed"]]))).max()) for row in fits)
            seconds, sent, evaluations, rounds = (
                float(np.mean([row[what] for row in fits])) for what in ("seconds", "bytes", "rounds", "ledger_rounds")
            )
            rows.append(
                [
                    str(agents),
                    method,
                    *(f"{value:.3f}" for value in np.median([row["theta"] for row in fits], axis=0)),
                    f"{off:.0e}",
                    server,
                    f"{evaluations:.1f}",
                    f"{rounds:,.0f}",
                    done,
                    readable_seconds(seconds / agents),
                    readable_bytes(round(sent / agents)),
                ]
            )
    return columns, rows
