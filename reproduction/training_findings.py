"""What the paper concludes about training, held against our numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reproduction.findings import Finding, above, below
from reproduction.paper import TRAINERS
from reproduction.training import NESTED, NESTING, TRUTH, Groups, TrainingPlan, each

#: l_1 off by less is accurate, after training with a server and over edges, where 100 rounds leave more to do.
ACCURATE, ACCURATE_OVER_EDGES = 0.15, 0.25
#: A method loses l_1 if its error is beyond that, and so many times its augmented sibling's.
TIMES_WORSE = 2.0
#: l_1 off by more, after training to convergence, would be the fault of the likelihood.
LOST = 0.4
#: A hyperparameter off by more has not been found.
INACCURATE = 0.2


def training_findings(plan: TrainingPlan, blocks: Mapping[str, Groups]) -> list[Finding]:
    """One per claim, in the order of the page."""
    paper, default = blocks["paper"], blocks["default"]
    return [
        fewest_rounds(plan, paper),
        loses_length_scale(plan, paper),
        *([factorized_loses(plan, default)] if length_scales(plan, default, "apx-gp") else []),
        best_decentralized(plan, paper),
        nested_is_inaccurate(plan, paper),
    ]


def length_scales(plan: TrainingPlan, found: Groups, method: str) -> list[tuple[int, float]]:
    """(M, median l_1) of the first size."""
    return [(m, float(np.median(group.thetas[:, 0]))) for m, group in each(plan, found, method, plan.sizes[0])]


def _told(values: Sequence[tuple[int, float]], form: str = ".2f") -> str:
    return ", ".join(f"{value:{form}} (M = {agents})" for agents, value in values)


def fewest_rounds(plan: TrainingPlan, found: Groups) -> Finding:
    size = plan.sizes[0]
    rounds = {m: [(a, g.rounds) for a, g in each(plan, found, m, size)] for m in TRAINERS[1:6]}
    linear = [value for m in ("apx-gp", "gapx-gp") for _, value in rounds[m]]
    nested = [value for _, value in rounds["c-gp"]]
    plain = [value for m in ("fact-gp", "g-fact-gp") for _, value in rounds[m]]
    average = float(np.mean(linear))
    frugal = ": with a good minimizer at the server they are as frugal as apx-gp"
    return Finding(
        "Of the methods with a server, apx-gp and gapx-gp need the fewest rounds: 40 to 56; c-gp needs 67 to 194, "
        "fact-gp and g-fact-gp 112 to 226.",
        f"N = {size:,}: apx-gp {_told(rounds['apx-gp'], '.0f')}; gapx-gp {_told(rounds['gapx-gp'], '.0f')}; c-gp "
        f"{min(nested):.0f} or more (its limit here). fact-gp and g-fact-gp, which we minimize by L-BFGS, need "
        f"{min(plain):.0f} to {max(plain):.0f}, and end at the optimum"
        + (frugal if max(plain) <= max(value for _, value in rounds["apx-gp"]) else "")
        + ".",
        core=[below("average rounds of apx-gp and gapx-gp, against c-gp's fewest", average, min(nested))],
        checks=[below("most rounds of apx-gp and gapx-gp, against the others' fewest", max(linear), min(plain))],
    )


def loses_length_scale(plan: TrainingPlan, found: Groups) -> Finding:
    medians = {m: length_scales(plan, found, m) for m in ("apx-gp", "gapx-gp", "dec-apx-gp", "dec-gapx-gp")}
    off = {m: abs(values[-1][1] / TRUTH[0] - 1.0) for m, values in medians.items()}
    accurate = {"gapx-gp": ACCURATE, "dec-gapx-gp": ACCURATE_OVER_EDGES}
    losing = {"apx-gp": "gapx-gp", "dec-apx-gp": "dec-gapx-gp"}
    return Finding(
        "gapx-gp stays accurate as M grows, while apx-gp loses l_1; the same with dec-gapx-gp and dec-apx-gp.",
        f"Median l_1 (truth {TRUTH[0]:g}), N = {plan.sizes[0]:,}: "
        + "; ".join(f"{m} {_told(values)}" for m, values in medians.items())
        + f". Off at M = {plan.fleets[-1]}: "
        + ", ".join(f"{m} {value:.0%}" for m, value in off.items())
        + ".",
        core=[below(f"error of {method}", off[method], limit) for method, limit in accurate.items()],
        checks=[
            above(f"error of {m}", off[m], max(TIMES_WORSE * off[sibling], accurate[sibling]))
            for m, sibling in losing.items()
        ],
    )


def factorized_loses(plan: TrainingPlan, found: Groups) -> Finding:
    medians = [length_scales(plan, found, method) for method in ("apx-gp", "dec-apx-gp")]
    worst = max(abs(value / TRUTH[0] - 1.0) for values in medians for _, value in values)
    lost = above("largest error of l_1, run to convergence", worst, LOST)
    early = (
        ". Most of the loss above is training that ends early: along l_1 the likelihood of a narrow stripe is flat, "
        "and steps of stiffness 5,000 have not arrived when the rule |theta_i - z| < 1e-3 holds or the 100 rounds end."
    )
    return Finding(
        "It is the factorized likelihood that makes apx-gp lose l_1 for many agents.",
        f"Run to convergence by our defaults, apx-gp and dec-apx-gp have l_1 = {'; '.join(map(_told, medians))}: "
        f"within {worst:.0%} of the truth{'.' if lost.holds else early}",
        [lost],
    )


def best_decentralized(plan: TrainingPlan, found: Groups) -> Finding:
    size = plan.sizes[0]
    parts, behind = [], []
    for agents in plan.fleets:
        worst = {
            m: max(found[size, agents, m].off(j) for j in range(len(TRUTH)))
            for m in ("dec-c-gp", "dec-apx-gp", "dec-gapx-gp")
            if (size, agents, m) in found
        }
        parts.append(f"M = {agents}: " + ", ".join(f"{m} {v:.0%}" for m, v in worst.items()))
        own = worst.pop("dec-gapx-gp")
        behind.append(own / min(worst.values()))
    return Finding(
        "dec-gapx-gp is the most accurate decentralized method for every fleet size.",
        f"The worst hyperparameter's median distance from the truth, N = {size:,}: {'; '.join(parts)}.",
        [below("error over the smallest of the others, in the worst fleet", max(behind), 1.0)],
    )


def nested_is_inaccurate(plan: TrainingPlan, found: Groups) -> Finding:
    size = plan.sizes[0]
    off = [g.off(0) for m in NESTING for _, g in each(plan, found, m, size)]
    noise = max(found[size, plan.fleets[-1], m].off(3) for m in NESTING)
    dearer = min(
        g.seconds_per_agent / max(found[size, a, m].seconds_per_agent for m in rivals if (size, a, m) in found)
        for nested, rivals in (("c-gp", ("apx-gp", "gapx-gp")), ("dec-c-gp", ("dec-apx-gp", "dec-gapx-gp")))
        for a, g in each(plan, found, nested, size)
    )
    inaccurate = above("smallest error of l_1", min(off), INACCURATE)
    dearest = above("time over the longest of their rivals", dearer, 1.0)
    seen = [f"l_1 is off by {min(off):.0%} to {max(off):.0%} in the median"]
    if inaccurate.holds:
        seen[0] += f": gradient descent with a step of 1e-5 has not arrived after 100 rounds of {NESTED} steps"
    if noise > INACCURATE:
        seen.append(
            "For larger fleets sigma_eps has not either, unlike in the paper, whose number of nested steps is not known"
        )
    seen.append(f"They are {'' if dearest.holds else 'not always '}the dearest in time")
    return Finding(
        "c-gp and dec-c-gp are inaccurate on l_1, and the dearest of their kind.",
        ". ".join(seen) + ".",
        [inaccurate, dearest],
    )
