"""The prediction experiment as tables, figures and findings, beside the paper's own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

import fleetgp as fg
from fleetgp.experiments import prediction
from fleetgp.experiments.paper import LEFT_OUT, QUALITY, SOURCES, nearest
from fleetgp.experiments.prediction import FIVE, Found, PredictionPlan, mean_of, sea
from fleetgp.experiments.prediction_figures import data_figure, family_figure, five_figure
from fleetgp.experiments.report import STYLE, Finding, Report
from fleetgp.units import readable_seconds


def write(plan: PredictionPlan, fit: Mapping[str, Any], results: Sequence[Mapping[str, Any]], folder: Path) -> Report:
    """The whole page; results.csv and results.json beside it."""
    rows = [dict(row) for row in results]
    report = Report("The paper's prediction experiment, reproduced", folder)
    found: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["method"], row["graph"], row["agents"]), []).append(row)
    product = sea(plan.sst).product
    report.facts |= {"product": product, "training": dict(fit)}
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
    )
    report.heading("Where we agree with the paper, and where not")
    report.findings(findings(plan, found))
    report.heading("Hyperparameters")
    report.table(
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
    with mpl.rc_context(STYLE):
        report.heading("Accuracy and uncertainty")
        report.figure(
            "families",
            family_figure(plan, found),
            f"Average RMSE and NLPD over {plan.replications} replications. Data: {product}. The paper has these in "
            "Figures fig:RMSE_NLPD_PoE_family, fig:RMSE_NLPD_BCM_family, fig:RMSE_NLPD_NPAE_family and "
            "fig:RMSE_NLPD_dist_NPAE (drawn, not tabulated). Grey: the exact GP of all data.",
        )
        for agents in plan.fleets:
            report.table(f"M = {agents}", *_table(found, agents), left=2)
        report.heading("Nearest neighbours")
        report.table(f"Paper: {SOURCES['nearest']}.", *_nearest_table(plan, found), left=2)
        report.heading("The five-method comparison")
        report.figure(
            "five",
            five_figure(plan, found),
            "The paper's five best decentralized methods on a path: accuracy, uncertainty, rounds and time per "
            f"agent. Data: {product}. The paper has this in Figure fig:boxplots_prediction_20000.",
        )
        report.table(
            f"The paper's own judgement: {SOURCES['quality']}.",
            ("method", "RMSE", "NLPD", "communication", "scalable"),
            [(method, *words) for method, words in QUALITY.items()],
            left=5,
        )
        report.heading("The data")
        report.figure(
            "data",
            data_figure(plan),
            f"Left: the field ({product}). Right: the observations of each agent, M = 10.",
        )
    report.write(rows, {**plan.as_dict(), "noise": prediction.NOISE, "box": prediction.BOX, "product": product})
    return report


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


def _table(found: Found, agents: int) -> tuple[list[str], list[list[str]]]:
    columns = ["method", "graph", "RMSE (K)", "NLPD", "NLPD y", "95 % cover", "off its server method (K)",
               "agents", "rounds", "converged", "time per agent", "sent per agent"]  # fmt: skip
    rows = []
    for (method, graph, fleet), group in found.items():
        if fleet != agents:
            continue
        decentralized = method.startswith("dec-")
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
                f"{sum(row['status'] == 'converged' for row in group)} of {len(group)}",
                readable_seconds(mean_of(group, "seconds") / agents),
                f"{mean_of(group, 'scalars') / agents:,.0f}",
            ]
        )
    return columns, rows


def _nearest_table(plan: PredictionPlan, found: Found) -> tuple[list[str], list[list[str]]]:
    columns = ["M", "method", "took part", "paper's", "time per agent", "paper's", "rounds", "paper's", "converged"]
    rows = []
    for agents in plan.fleets:
        for method in fg.PREDICTION_METHODS:
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


# ---- findings ------------------------------------------------------------------------------------------


def findings(plan: PredictionPlan, found: Found) -> list[Finding]:
    """What the paper concludes, held against our numbers."""
    return [
        _samemean_of(plan, found),
        _decentralized_equals(plan, found),
        _left_out(plan, found),
        _best_nlpd(plan, found),
        _npae_star(plan, found),
        _dale(plan, found),
        _few_rounds(plan, found),
    ]


def _samemean_of(plan: PredictionPlan, found: Found) -> Finding:
    off = max(
        abs(a["rmse"] - b["rmse"])
        for m in plan.fleets
        for a, b in zip(found["poe", "server", m], found["gpoe", "server", m], strict=True)
    )
    worst = {m: mean_of(found["poe", "server", m], "coverage") for m in plan.fleets}
    agrees = off < 1e-6 and worst[plan.fleets[-1]] < min(0.9, worst[plan.fleets[0]])
    return Finding(
        "poe and gpoe have the same mean; poe is overconfident, more so for large fleets.",
        True if agrees else None if off < 1e-6 else False,
        f"Their RMSE differ by {off:.0e} at most. poe's 95 % intervals hold "
        + ", ".join(f"{value:.0%} (M = {m})" for m, value in worst.items())
        + " of the truths.",
    )


def _decentralized_equals(plan: PredictionPlan, found: Found) -> Finding:
    off = {
        method: max(mean_of(found[method, "path", m], "off_central") for m in plan.fleets)
        for method in (f"dec-{rule}" for rule in ("poe", "gpoe", "bcm", "rbcm", "grbcm"))
    }
    return Finding(
        "dec-poe, dec-gpoe, dec-bcm, dec-rbcm and dec-grbcm equal their server methods.",
        bool(max(off.values()) < 1e-3),
        "Root mean square difference of the means, at most: "
        + ", ".join(f"{method} {value:.0e} K" for method, value in off.items())
        + ".",
    )


def _left_out(plan: PredictionPlan, found: Found) -> Finding:
    dropped = {m: 1.0 - mean_of(found["dec-nn-rbcm", "path", m], "participants") / m for m in plan.fleets}
    change = {
        rule: [
            mean_of(found[f"dec-nn-{rule}", "path", m], "rmse") / mean_of(found[f"dec-{rule}", "path", m], "rmse") - 1.0
            for m in plan.fleets
        ]
        for rule in ("poe", "gpoe", "bcm", "rbcm", "grbcm")
    }
    harmless = max(max(values) for values in change.values()) < 0.01
    return Finding(
        f"Nearest neighbours leave out {LEFT_OUT:.1%} of the agents, without loss.",
        (0.3 < float(np.mean(list(dropped.values()))) < 0.6 or None) if harmless else False,
        "Left out: "
        + ", ".join(f"{value:.0%} (M = {m})" for m, value in dropped.items())
        + f", {np.mean(list(dropped.values())):.0%} on average. RMSE changes by "
        + "; ".join(f"{rule} {min(v):+.1%} to {max(v):+.1%}" for rule, v in change.items())
        + "."
        + (
            " Where poe and gpoe gain it is because agents that know nothing of a point pull a product of experts "
            "to the prior."
            if min(change["poe"] + change["gpoe"]) < -0.01
            else ""
        ),
    )


def _best_nlpd(plan: PredictionPlan, found: Found) -> Finding:
    def ranking(what: str) -> list[tuple[float, str]]:
        return sorted((float(np.mean([mean_of(found[m, "path", a], what) for a in plan.fleets])), m) for m in FIVE)

    order, noisy = ranking("nlpd"), ranking("nlpd_noisy")
    best = {order[0][1], order[1][1]}
    bad = "dec-nn-rbcm" in (order[-1][1], order[-2][1])
    return Finding(
        "dec-nn-grbcm and dec-npae-star are the best in NLPD of the five; dec-nn-rbcm is bad.",
        True
        if best == {"dec-nn-grbcm", "dec-npae-star"} and bad
        else None
        if bad or best & {"dec-nn-grbcm", "dec-npae-star"}
        else False,
        "NLPD, average over fleets: "
        + ", ".join(f"{m} {value:.2f}" for value, m in order)
        + ". Of noisy observations: "
        + ", ".join(f"{m} {value:.2f}" for value, m in noisy)
        + f". The exact GP has {mean_of(found['full-gp', 'server', plan.fleets[0]], 'nlpd'):.2f}"
        + ": where one stationary kernel does not fit the field, as at an ocean front, whoever is less sure is better.",
    )


def _npae_star(plan: PredictionPlan, found: Found) -> Finding:
    star = {m: mean_of(found["dec-npae-star", "complete", m], "off_central") for m in plan.fleets}
    plain = {m: mean_of(found["dec-npae", "complete", m], "off_central") for m in plan.fleets}
    best = {m: min((mean_of(found[method, "path", m], "rmse"), method) for method in FIVE)[1] for m in plan.fleets}
    return Finding(
        "dec-npae-star has a smaller error than dec-npae, and is the most accurate of the five.",
        (set(best.values()) == {"dec-npae-star"} or None)
        if np.mean(list(star.values())) < np.mean(list(plain.values()))
        else False,
        "Root mean square difference to npae, complete graph: "
        + ", ".join(f"{star[m]:.1g} against {plain[m]:.1g} K (M = {m})" for m in plan.fleets)
        + f", after at most {prediction.NPAE_ROUNDS:,} iterations. Of the five, on a path, the smallest RMSE: "
        + ", ".join(f"{method} (M = {m})" for m, method in best.items())
        + ".",
    )


def _dale(plan: PredictionPlan, found: Found) -> Finding:
    off = {m: mean_of(found["dec-nn-npae", "path", m], "off_central") for m in plan.fleets}
    done = sum(row["status"] == "converged" for m in plan.fleets for row in found["dec-nn-npae", "path", m])
    seconds = {method: np.mean([mean_of(found[method, "path", m], "seconds") for m in plan.fleets]) for method in FIVE}
    slowest = max(seconds, key=lambda method: float(seconds[method]))
    return Finding(
        "dec-nn-npae has a high approximation error and is the slowest.",
        (slowest == "dec-nn-npae" or None) if max(off.values()) > 0.05 else False,
        "Off npae by "
        + ", ".join(f"{value:.2f} K (M = {m})" for m, value in off.items())
        + f"; {done} runs converged within {prediction.NPAE_ROUNDS:,} rounds. The slowest of the five: {slowest}.",
    )


def _few_rounds(plan: PredictionPlan, found: Found) -> Finding:
    rounds = {m: mean_of(found["dec-nn-grbcm", "path", m], "rounds") for m in plan.fleets}
    return Finding(
        "The dec-nn- methods need 3.6 to 7.4 rounds on a path.",
        False,
        "dec-nn-grbcm needs "
        + ", ".join(f"{value:,.0f} (M = {m})" for m, value in rounds.items())
        + " to a relative tolerance of 1e-6. Fewer than the diameter of the participants' path cannot be: no agent can "
        "average what it has not heard of.",
    )
