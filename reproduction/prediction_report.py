"""The prediction experiment as tables, figures and findings, beside the paper's own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from fleetgp.units import readable_bytes, readable_seconds
from reproduction import prediction
from reproduction.cells import REFUSED, refusals
from reproduction.paper import PREDICTORS, QUALITY, SOURCES, nearest
from reproduction.prediction import OURS, TREE, Found, PredictionPlan, answered, found_in, mean_of, sea
from reproduction.prediction_figures import data_figure, family_figure, five_figure
from reproduction.prediction_findings import SAME, prediction_findings
from reproduction.report import STYLE, Report


def write(
    plan: PredictionPlan, fit: Mapping[str, Any], results: Sequence[Mapping[str, Any]], folder: Path, remark: str = ""
) -> Report:
    """The whole page; results.csv and results.json beside it. remark: of results that are not of one run."""
    rows = [dict(row) for row in results]
    report = Report("The paper's prediction experiment, reproduced", folder)
    found = found_in(rows)
    product = sea(plan.sst).product
    report.facts |= {"product": product, "training": dict(fit)}
    _introduce(report, plan, product)
    report.remark(remark)
    report.heading("Where we agree with the paper, and where not")
    report.findings(prediction_findings(plan, found))
    report.heading("Hyperparameters")
    report.table(*_fit_table(fit))
    with mpl.rc_context(STYLE):
        _write_results(report, plan, found, product)
    report.write(rows, {**plan.as_dict(), "noise": prediction.NOISE, "box": prediction.BOX, "product": product})
    return report


def _introduce(report: Report, plan: PredictionPlan, product: str) -> None:
    report.text(
        f"Data: {product}. " + _about_data(plan),
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


def _fit_table(fit: Mapping[str, Any]) -> tuple[str, Sequence[str], Sequence[Sequence[object]]]:
    """Caption, columns and the one row."""
    return (
        f"By dec-gapx-gp with our default steps and at most {prediction.TRAINING_ROUNDS} rounds, as in the paper: "
        "once, "
        f"on the first replication's data, by {prediction.TRAINING_FLEET} agents. All fleets use them, so that they "
        "differ in predicting only",
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


def _write_results(report: Report, plan: PredictionPlan, found: Found, product: str) -> None:
    report.heading("Accuracy and uncertainty")
    report.figure(
        "families",
        family_figure(plan, found),
        f"Average RMSE and NLPD over {plan.replications} replications. Data: {product}. The paper has these in "
        "Figures 11 to 14 (drawn, not tabulated). Grey: the exact GP of all data.",
    )
    for agents in plan.fleets:
        report.table(f"M = {agents}", *accuracy_table(found, agents), left=2)
    report.heading("Nearest neighbours")
    report.table(f"Paper: {SOURCES['nearest']}.", *_nearest_table(plan, found), left=2)
    report.heading("The five-method comparison")
    report.figure(
        "five",
        five_figure(plan, found),
        "The paper's five best decentralized methods on a path: accuracy, uncertainty, rounds and time per "
        f"agent. Data: {product}. The paper has this in Figure 15.",
    )
    report.table(
        f"The paper's own judgement: {SOURCES['quality']}.",
        ("method", "RMSE", "NLPD", "communication", "scalable"),
        [(method, *words) for method, words in QUALITY.items()],
        left=5,
    )
    report.heading("Not the paper's: exact, along the tree")
    report.text(*about_tree(found))
    report.table(
        "Rounds and bytes are of everything that is sent for the answers to all points, first meetings included: "
        "scaling, samples or moments, and who takes part",
        *_tree_table(plan, found),
        left=3,
    )
    report.heading("The data")
    report.figure(
        "data",
        data_figure(plan),
        f"Left: the field ({product}). Right: the observations of each agent, M = 10.",
    )


def _about_data(plan: PredictionPlan) -> str:
    if not plan.sst:
        return (
            "It is drawn with length-scales and a spread like those of the sea; the paper's numbers are not "
            "comparable. Give a NetCDF file that covers 73.0 to 69.4 W, 36.4 to 40.0 N for the real thing."
        )
    return (
        "The box is the paper's, 73.0 to 69.4 W, 36.4 to 40.0 N in the Atlantic. The paper uses MUR v4.1 of a day that "
        "it does not name; another product or day has other values, so what is compared is the order of the methods."
    )


def _rounds(rows: Sequence[Mapping[str, Any]]) -> str:
    solving = mean_of(rows, "solver_rounds")
    return f"{mean_of(rows, 'rounds'):,.0f}" + (f" + {solving:,.0f}" if solving else "")


def accuracy_table(found: Found, agents: int) -> tuple[list[str], list[list[str]]]:
    columns = ["method", "graph", "RMSE (K)", "NLPD", "NLPD y", "95 % cover", "off its server method (K)",
               "agents", "rounds", "converged", "time per agent", "sent per agent"]  # fmt: skip
    rows = []
    for (method, graph, fleet), all_of in found.items():
        if fleet != agents:
            continue
        decentralized = method.startswith("dec-")
        done = f"{sum(row['status'] == 'converged' for row in all_of)} of {len(all_of)}"
        group = answered(all_of)
        if not group:
            rows.append([method, graph, REFUSED, *[""] * 6, done, "", ""])
            continue
        rows.append(
            [
                method,
                graph,
                f"{mean_of(group, 'rmse'):.3f}",
                f"{mean_of(group, 'nlpd'):.2f}",
                f"{mean_of(group, 'nlpd_noisy'):.2f}",
                f"{mean_of(group, 'coverage'):.0%}",
                f"{mean_of(group, 'off_central'):.1g}" if decentralized else "",
                f"{mean_of(group, 'participants'):.1f}",
                _rounds(group) if decentralized else "",
                done,
                readable_seconds(mean_of(group, "seconds") / agents),
                f"{mean_of(group, 'scalars') / agents:,.0f}",
            ]
        )
    return columns, rows


def _nearest_table(plan: PredictionPlan, found: Found) -> tuple[list[str], list[list[str]]]:
    columns = ["M", "method", "took part", "paper's", "time per agent", "paper's", "rounds", "paper's", "converged"]
    rows = []
    for agents in plan.fleets:
        for method in PREDICTORS:
            group = found.get((method, "path", agents))
            if not method.startswith("dec-nn-") or group is None:
                continue
            theirs = nearest(method, agents)
            taking = [row["participants"] for row in group]
            rows.append(
                [
                    str(agents),
                    method,
                    f"{np.mean(taking):.1f} ± {np.std(taking):.1f}",
                    f"{theirs.participants[0]} ± {theirs.participants[1]}" if theirs else "",
                    readable_seconds(mean_of(group, "seconds") / agents),
                    readable_seconds(theirs.seconds) if theirs else "",
                    f"{mean_of(group, 'rounds'):,.1f}",
                    f"{theirs.rounds:,}" if theirs else "",
                    f"{sum(row['status'] == 'converged' for row in group)} of {len(group)}",
                ]
            )
    return columns, rows


def about_tree(found: Found) -> list[str]:
    ours = [row for (_, graph, _), group in found.items() if graph == TREE for row in group]
    whole = [row["off_central"] for row in answered(ours) if row["method"] == "dec-full-gp"]
    told = [
        "dec-full-gp adds up moments of the agents' data once, and then every agent answers alone, without a round. "
        "dec-nn-grbcm adds up the same summands as the paper's, in one reduction up and down the tree instead of an "
        "average."
    ]
    if whole:
        exact = "is the exact GP of all data" if max(whole) < SAME else "differs from the exact GP of all data"
        told.append(f"dec-full-gp {exact}: root mean square difference of the means, at most {max(whole):.0e} K.")
    return told + refusals(ours)


def _tree_table(plan: PredictionPlan, found: Found) -> tuple[list[str], list[list[str]]]:
    """Each of ours, after what it is to be compared with."""
    columns = ["M", "method", "sums by", "RMSE (K)", "NLPD", "rounds", "sent per agent", "time per agent"]
    rows = []
    beside = {"dec-full-gp": ("full-gp", "server")}
    ways = [way for method in OURS for way in (beside.get(method, (method, "path")), (method, TREE))]
    by = {"server": "a server", "path": "averages", TREE: "the tree (ours)"}
    for agents in plan.fleets:
        for method, graph in ways:
            group = answered(found.get((method, graph, agents), ()))
            if not group:
                continue
            rows.append(
                [
                    str(agents),
                    method,
                    by[graph],
                    f"{mean_of(group, 'rmse'):.3f}",
                    f"{mean_of(group, 'nlpd'):.2f}",
                    f"{mean_of(group, 'ledger_rounds'):,.0f}",
                    readable_bytes(round(mean_of(group, "bytes") / agents)),
                    readable_seconds(mean_of(group, "seconds") / agents),
                ]
            )
    return columns, rows
