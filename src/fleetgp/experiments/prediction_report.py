"""The prediction experiment as tables, figures and findings, beside the paper's own numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import fleetgp as fg
from fleetgp.experiments import prediction
from fleetgp.experiments.paper import LEFT_OUT, QUALITY, SOURCES, nearest
from fleetgp.experiments.prediction import PredictionPlan, sea
from fleetgp.experiments.report import COLOURS, STYLE, Finding, Report
from fleetgp.units import readable_seconds

#: The five methods that the paper compares at the end.
FIVE = tuple(QUALITY)
FAMILIES = {
    "PoE family, path": (("poe", "server"), ("dec-poe", "path"), ("dec-nn-poe", "path"),
                         ("gpoe", "server"), ("dec-gpoe", "path"), ("dec-nn-gpoe", "path")),
    "BCM family, path": tuple((f"{kind}{rule}", "path" if kind else "server")
                              for rule in ("bcm", "rbcm", "grbcm") for kind in ("", "dec-", "dec-nn-")),
    "NPAE family": (("npae", "server"), ("dec-npae", "complete"), ("dec-npae-star", "complete"),
                    ("dec-npae-star", "path"), ("dec-nn-npae", "path")),
}  # fmt: skip
#: (method, graph, agents) -> the replications.
Found = Mapping[tuple[str, str, int], Sequence[Mapping[str, Any]]]


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


def _mean(rows: Sequence[Mapping[str, Any]], what: str) -> float:
    return float(np.mean([row[what] for row in rows]))


def _rounds(rows: Sequence[Mapping[str, Any]]) -> str:
    solving = _mean(rows, "solver_rounds")
    return f"{_mean(rows, 'rounds'):,.0f}" + (f" + {solving:,.0f}" if solving else "")


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
                f"{_mean(group, 'rmse'):.3f}",
                f"{_mean(group, 'nlpd'):.2f}",
                f"{_mean(group, 'nlpd_noisy'):.2f}",
                f"{_mean(group, 'coverage'):.0%}",
                f"{_mean(group, 'off_central'):.1g}" if decentralized else "",
                f"{_mean(group, 'participants'):.1f}",
                _rounds(group) if decentralized else "",
                f"{sum(row['status'] == 'converged' for row in group)} of {len(group)}",
                readable_seconds(_mean(group, "seconds") / agents),
                f"{_mean(group, 'scalars') / agents:,.0f}",
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
                    readable_seconds(_mean(group, "seconds") / agents),
                    readable_seconds(theirs.seconds) if theirs else "",
                    f"{_mean(group, 'rounds'):,.1f}",
                    f"{theirs.rounds:,}" if theirs else "",
                    f"{sum(row['status'] == 'converged' for row in group)} of {len(group)}",
                ]
            )
    return columns, rows


# ---- findings ------------------------------------------------------------------------------------------


def findings(plan: PredictionPlan, found: Found) -> list[Finding]:
    """What the paper concludes, held against our numbers."""
    return [
        _same_mean(plan, found),
        _decentralized_equals(plan, found),
        _left_out(plan, found),
        _best_nlpd(plan, found),
        _npae_star(plan, found),
        _dale(plan, found),
        _few_rounds(plan, found),
    ]


def _same_mean(plan: PredictionPlan, found: Found) -> Finding:
    off = max(
        abs(a["rmse"] - b["rmse"])
        for m in plan.fleets
        for a, b in zip(found["poe", "server", m], found["gpoe", "server", m], strict=True)
    )
    worst = {m: _mean(found["poe", "server", m], "coverage") for m in plan.fleets}
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
        method: max(_mean(found[method, "path", m], "off_central") for m in plan.fleets)
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
    dropped = {m: 1.0 - _mean(found["dec-nn-rbcm", "path", m], "participants") / m for m in plan.fleets}
    change = {
        rule: [
            _mean(found[f"dec-nn-{rule}", "path", m], "rmse") / _mean(found[f"dec-{rule}", "path", m], "rmse") - 1.0
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
        return sorted((float(np.mean([_mean(found[m, "path", a], what) for a in plan.fleets])), m) for m in FIVE)

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
        + f". The exact GP has {_mean(found['full-gp', 'server', plan.fleets[0]], 'nlpd'):.2f}"
        + ": where one stationary kernel does not fit the field, as at an ocean front, whoever is less sure is better.",
    )


def _npae_star(plan: PredictionPlan, found: Found) -> Finding:
    star = {m: _mean(found["dec-npae-star", "complete", m], "off_central") for m in plan.fleets}
    plain = {m: _mean(found["dec-npae", "complete", m], "off_central") for m in plan.fleets}
    best = {m: min((_mean(found[method, "path", m], "rmse"), method) for method in FIVE)[1] for m in plan.fleets}
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
    off = {m: _mean(found["dec-nn-npae", "path", m], "off_central") for m in plan.fleets}
    done = sum(row["status"] == "converged" for m in plan.fleets for row in found["dec-nn-npae", "path", m])
    seconds = {method: np.mean([_mean(found[method, "path", m], "seconds") for m in plan.fleets]) for method in FIVE}
    slowest = max(seconds, key=lambda method: float(seconds[method]))
    return Finding(
        "dec-nn-npae has a high approximation error and is the slowest.",
        (slowest == "dec-nn-npae" or None) if max(off.values()) > 0.05 else False,
        "Off npae by "
        + ", ".join(f"{value:.2f} K (M = {m})" for m, value in off.items())
        + f"; {done} runs converged within {prediction.NPAE_ROUNDS:,} rounds. The slowest of the five: {slowest}.",
    )


def _few_rounds(plan: PredictionPlan, found: Found) -> Finding:
    rounds = {m: _mean(found["dec-nn-grbcm", "path", m], "rounds") for m in plan.fleets}
    return Finding(
        "The dec-nn- methods need 3.6 to 7.4 rounds on a path.",
        False,
        "dec-nn-grbcm needs "
        + ", ".join(f"{value:,.0f} (M = {m})" for m, value in rounds.items())
        + " to a relative tolerance of 1e-6. Fewer than the diameter of the participants' path cannot be: no agent can "
        "average what it has not heard of.",
    )


# ---- figures -------------------------------------------------------------------------------------------


def family_figure(plan: PredictionPlan, found: Found) -> Figure:
    """RMSE above, NLPD below; a column for each family."""
    figure = Figure(figsize=(7.2, 5.8), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey="row")
    for column, (family, members) in enumerate(FAMILIES.items()):
        for row, (what, label) in enumerate((("rmse", "RMSE (K)"), ("nlpd", "NLPD"))):
            panel = axes[row, column]
            reference = [_mean(found["full-gp", "server", m], what) for m in plan.fleets]
            panel.plot(plan.fleets, reference, color="#999999", linewidth=2.5, label="full-gp")
            for number, (method, graph) in enumerate(members):
                group = number // 3 if len(members) > 5 else number
                style = ("-", "--", ":")[number % 3] if len(members) > 5 else "-"
                panel.plot(
                    plan.fleets,
                    [_mean(found[method, graph, m], what) for m in plan.fleets],
                    color=COLOURS[group],
                    linestyle=style,
                    marker="osD^vX"[number % 6],
                    markerfacecolor="none" if number % 3 else COLOURS[group],
                    label=method if len(members) > 5 or graph == "server" else f"{method}, {graph}",
                )
            panel.set_xscale("log")
            panel.set_xticks(plan.fleets, [str(m) for m in plan.fleets])
            panel.minorticks_off()
            if row == 0:
                panel.set_title(family)
            else:
                panel.set_xlabel("agents M")
                panel.set_yscale("symlog", linthresh=1.0)
            if column == 0:
                panel.set_ylabel(label)
        axes[1, column].legend(frameon=False, fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    axes[0, 0].set_yscale("log")
    for panel in axes[0]:
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("{x:g}")
    _say_product(figure, plan)
    return figure


def five_figure(plan: PredictionPlan, found: Found) -> Figure:
    """Boxes by fleet and method."""
    figure = Figure(figsize=(7.2, 5.0), layout="constrained")
    quantities: tuple[tuple[str, Callable[[Mapping[str, Any]], float], str], ...] = (
        ("RMSE (K)", lambda row: row["rmse"], "linear"),
        ("NLPD", lambda row: row["nlpd"], "symlog"),
        ("rounds $s^{end}$", lambda row: row["rounds"] + row["solver_rounds"], "log"),
        ("time per agent (s)", lambda row: row["seconds"] / row["agents"], "log"),
    )
    panels = figure.subplots(2, 2).ravel()
    for panel, (label, value, scale) in zip(panels, quantities, strict=True):
        for number, method in enumerate(FIVE):
            for place, agents in enumerate(plan.fleets):
                values = [value(row) for row in found[method, "path", agents]]
                drawn = panel.boxplot(
                    [values],
                    positions=[place + 0.16 * (number - 2)],
                    widths=0.13,
                    whis=(0, 100),
                    patch_artist=True,
                    manage_ticks=False,
                    boxprops={"facecolor": COLOURS[number], "edgecolor": COLOURS[number], "alpha": 0.6},
                    medianprops={"color": "black"},
                    whiskerprops={"color": COLOURS[number]},
                    capprops={"color": COLOURS[number]},
                )
                if place == 0 and panel is panels[0]:
                    drawn["boxes"][0].set_label(method)
        panel.set_xticks(range(len(plan.fleets)), [str(m) for m in plan.fleets])
        panel.set(xlabel="agents M", ylabel=label, yscale=scale)
        panel.grid(axis="x", visible=False)
    figure.legend(loc="outside upper center", ncols=5, frameon=False)
    _say_product(figure, plan)
    return figure


def data_figure(plan: PredictionPlan) -> Figure:
    """The field, and who observed what."""
    field = sea(plan.sst)
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    image = left.scatter(
        *field.places.T, c=field.values, s=0.6, marker="s", linewidths=0, cmap="viridis", rasterized=True
    )
    figure.colorbar(image, ax=left, label="temperature (K)" if plan.sst else "value (K)", shrink=0.9)
    inputs, observations, *_ = prediction.drawn({**plan.as_dict(), "sst": plan.sst}, 0)
    shards = fg.partition(inputs, observations, agents=10)
    for agent, (x, _) in enumerate(shards):
        right.scatter(*x.T, s=1.2, color=COLOURS[agent % 6], linewidths=0, rasterized=True)
    for panel, title in ((left, "Field"), (right, "Observations of ten agents")):
        panel.set(
            title=title, xlabel="longitude, scaled" if plan.sst else "$x_1$", xlim=(0, 1), ylim=(0, 1), aspect="equal"
        )
        panel.grid(visible=False)
    left.set_ylabel("latitude, scaled" if plan.sst else "$x_2$")
    _say_product(figure, plan)
    return figure


def _say_product(figure: Figure, plan: PredictionPlan) -> None:
    figure.supxlabel(f"Data: {sea(plan.sst).product}", fontsize=6, color="#555555")
