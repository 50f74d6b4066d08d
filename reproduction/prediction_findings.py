"""What the paper concludes about prediction, held against our numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fleetgp.prediction.methods import AGGREGATIONS
from reproduction.findings import Finding, above, below
from reproduction.paper import LEFT_OUT, NEAREST_ROUNDS
from reproduction.prediction import FIVE, NPAE_ROUNDS, Found, PredictionPlan, mean_of

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


def prediction_findings(plan: PredictionPlan, found: Found) -> list[Finding]:
    """One per claim, in the order of the page."""
    return [
        same_mean(plan, found),
        decentralized_equals(plan, found),
        left_out(plan, found),
        best_nlpd(plan, found),
        npae_star(plan, found),
        dale(plan, found),
        few_rounds(plan, found),
    ]


def by_fleet(plan: PredictionPlan, found: Found, method: str, graph: str, what: str) -> dict[int, float]:
    """M -> the average of a quantity over replications."""
    return {agents: mean_of(found[method, graph, agents], what) for agents in plan.fleets}


def _told(values: Mapping[int, object], form: str) -> str:
    return ", ".join(f"{format(value, form)} (M = {agents})" for agents, value in values.items())


def _mean(values: Mapping[int, float]) -> float:
    return float(np.mean(list(values.values())))


def same_mean(plan: PredictionPlan, found: Found) -> Finding:
    off = max(
        abs(a["rmse"] - b["rmse"])
        for m in plan.fleets
        for a, b in zip(found["poe", "server", m], found["gpoe", "server", m], strict=True)
    )
    covered = by_fleet(plan, found, "poe", "server", "coverage")
    smallest, largest = plan.fleets[0], plan.fleets[-1]
    alike = f"Their RMSE differ by {off:.0e} at most" if off else "Their RMSE are the same"
    return Finding(
        "poe and gpoe have the same mean; poe is overconfident, more so for large fleets.",
        f"{alike}. poe's 95 % intervals hold {_told(covered, '.0%')} of the truths.",
        core=[below("difference of RMSE", off, SAME)],
        checks=[
            below("coverage of the largest fleet", covered[largest], OVERCONFIDENT),
            below("coverage of the largest fleet, against the smallest's", covered[largest], covered[smallest]),
        ],
    )


def decentralized_equals(plan: PredictionPlan, found: Found) -> Finding:
    off = {
        f"dec-{rule}": max(by_fleet(plan, found, f"dec-{rule}", "path", "off_central").values())
        for rule in AGGREGATIONS
    }
    return Finding(
        "dec-poe, dec-gpoe, dec-bcm, dec-rbcm and dec-grbcm equal their server methods.",
        "Root mean square difference of the means, at most: "
        + ", ".join(f"{method} {value:.0e} K" for method, value in off.items())
        + ".",
        [below("largest difference", max(off.values()), EQUAL)],
    )


def left_out(plan: PredictionPlan, found: Found) -> Finding:
    taking = by_fleet(plan, found, "dec-nn-rbcm", "path", "participants")
    dropped = {m: 1.0 - count / m for m, count in taking.items()}
    change = {}
    for rule in AGGREGATIONS:
        nearest, all_agents = (by_fleet(plan, found, f"{kind}{rule}", "path", "rmse") for kind in ("dec-nn-", "dec-"))
        change[rule] = [nearest[m] / all_agents[m] - 1.0 for m in plan.fleets]
    gain = (
        " Where poe and gpoe gain it is because agents that know nothing of a point pull a product of experts to the "
        "prior."
    )
    return Finding(
        f"Nearest neighbours leave out {LEFT_OUT:.1%} of the agents, without loss.",
        f"Left out: {_told(dropped, '.0%')}, {_mean(dropped):.0%} on average. RMSE changes by "
        + "; ".join(f"{rule} {min(values):+.1%} to {max(values):+.1%}" for rule, values in change.items())
        + "."
        + (gain if min(change["poe"] + change["gpoe"]) < -LOSS else ""),
        core=[below("largest relative increase of the RMSE", max(map(max, change.values())), LOSS)],
        checks=[
            above("share left out", _mean(dropped), LIKE_LEFT_OUT[0]),
            below("share left out", _mean(dropped), LIKE_LEFT_OUT[1]),
        ],
    )


def best_nlpd(plan: PredictionPlan, found: Found) -> Finding:
    def ranking(what: str) -> list[tuple[float, str]]:
        return sorted((_mean(by_fleet(plan, found, method, "path", what)), method) for method in FIVE)

    def told(ranked: list[tuple[float, str]]) -> str:
        return ", ".join(f"{method} {value:.2f}" for value, method in ranked)

    order = ranking("nlpd")
    better = {method: place for place, (_, method) in enumerate(order)}
    exact = mean_of(found["full-gp", "server", plan.fleets[0]], "nlpd")
    unsure = (
        ": where one stationary kernel does not fit the field, as at an ocean front, whoever is less sure is better"
    )
    return Finding(
        "dec-nn-grbcm and dec-npae-star are the best in NLPD of the five; dec-nn-rbcm is bad.",
        f"NLPD, average over fleets: {told(order)}. Of noisy observations: {told(ranking('nlpd_noisy'))}. "
        f"The exact GP has {exact:.2f}{unsure if exact > order[0][0] else ''}.",
        [
            below("methods better than dec-nn-grbcm", better["dec-nn-grbcm"], AMONG_THE_BEST),
            below("methods better than dec-npae-star", better["dec-npae-star"], AMONG_THE_BEST),
            above("methods better than dec-nn-rbcm", better["dec-nn-rbcm"], AMONG_THE_WORST),
        ],
    )


def npae_star(plan: PredictionPlan, found: Found) -> Finding:
    star, plain = (by_fleet(plan, found, method, "complete", "off_central") for method in ("dec-npae-star", "dec-npae"))
    errors = {method: by_fleet(plan, found, method, "path", "rmse") for method in FIVE}
    best = {m: min((errors[method][m], method) for method in FIVE)[1] for m in plan.fleets}
    behind = max(
        errors["dec-npae-star"][m] / min(errors[method][m] for method in FIVE if method != "dec-npae-star")
        for m in plan.fleets
    )
    return Finding(
        "dec-npae-star has a smaller error than dec-npae, and is the most accurate of the five.",
        "Root mean square difference to npae, complete graph: "
        + ", ".join(f"{star[m]:.1g} against {plain[m]:.1g} K (M = {m})" for m in plan.fleets)
        + f", after at most {NPAE_ROUNDS:,} iterations. Of the five, on a path, the smallest RMSE: "
        + f"{_told(best, '')}.",
        core=[below("difference to npae, average, against dec-npae's", _mean(star), _mean(plain))],
        checks=[below("RMSE over the smallest of the others, in the worst fleet", behind, 1.0)],
    )


def dale(plan: PredictionPlan, found: Found) -> Finding:
    off = by_fleet(plan, found, "dec-nn-npae", "path", "off_central")
    done = sum(row["status"] == "converged" for m in plan.fleets for row in found["dec-nn-npae", "path", m])
    seconds = {method: _mean(by_fleet(plan, found, method, "path", "seconds")) for method in FIVE}
    slowest = max(seconds, key=lambda method: seconds[method])
    own = seconds.pop("dec-nn-npae")
    return Finding(
        "dec-nn-npae has a high approximation error and is the slowest.",
        f"Off npae by {', '.join(f'{value:.2f} K (M = {m})' for m, value in off.items())}; {done} runs converged "
        f"within {NPAE_ROUNDS:,} rounds. The slowest of the five: {slowest}.",
        core=[above("largest difference to npae", max(off.values()), HIGH)],
        checks=[above("time over the longest of the others", own / max(seconds.values()), 1.0)],
    )


def few_rounds(plan: PredictionPlan, found: Found) -> Finding:
    rounds = by_fleet(plan, found, "dec-nn-grbcm", "path", "rounds")
    fewest, most = NEAREST_ROUNDS
    limit = (
        " Fewer than the diameter of the participants' path cannot be: no agent can average what it has not heard of."
    )
    return Finding(
        f"The dec-nn- methods need {fewest:g} to {most:g} rounds on a path.",
        f"dec-nn-grbcm needs {_told(rounds, ',.0f')} to a relative tolerance of 1e-6." + limit,
        [below(f"rounds of {m} agents", value, ROUNDS_FACTOR * most) for m, value in rounds.items()],
    )
