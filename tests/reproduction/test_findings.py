"""Verdicts follow from the numbers: each finding just inside and outside of its limits, and the committed pages."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import fleetgp as fg
from reproduction import communication, paper, prediction, training
from reproduction.report import Check, Finding, Rows, above, below, grouped

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reproduction"


# ---- the rule ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        (below("", 0.999, 1.0), True),
        (below("", 1.0, 1.0), False),
        (above("", 1.001, 1.0), True),
        (above("", 1.0, 1.0), False),
        (below("", -0.1, 0.0), True),
        (above("", 0.0, 0.0), False),
        (below("", math.nan, 1.0), False),
        (above("", math.nan, 1.0), False),
    ],
)
def test_a_check_holds_strictly_within_its_limit(check: Check, holds: bool) -> None:
    assert check.holds is holds


YES, NO = below("", 0.5, 1.0), below("", 1.25, 1.0)


@pytest.mark.parametrize(
    ("core", "checks", "verdict"),
    [
        ([], [YES], "agrees"),
        ([], [NO], "differs"),
        ([], [YES, NO], "in part"),
        ([], [NO, NO], "differs"),
        ([YES], [YES, YES], "agrees"),
        ([YES], [NO, NO], "in part"),
        ([NO], [YES, YES], "differs"),
        ([YES, NO], [YES], "differs"),
    ],
)
def test_a_verdict_follows_from_the_checks(core: list[Check], checks: list[Check], verdict: str) -> None:
    assert Finding("", "", checks, core).verdict == verdict


def test_the_margin_is_that_of_the_closest_number() -> None:
    finding = Finding("", "", [YES, NO])
    assert finding.margin == 0.25
    assert [check["margin"] for check in finding.as_dict()["checks"]] == [0.5, -0.25]


# ---- prediction --------------------------------------------------------------------------------------------

SMALL, LARGE = 10, 40
PLAN = prediction.Plan(fleets=(SMALL, LARGE), replications=1)
#: Where every claim of the paper holds; all that is not here is equal among methods.
AGREEING: dict[str, dict[str, float]] = {
    "poe": {"coverage": 0.5},
    "dec-nn-rbcm": {"participants": 0.55, "nlpd": 5.0},
    "dec-nn-grbcm": {"nlpd": 0.1, "rounds": 7.0},
    "dec-npae-star": {"nlpd": 0.2, "rmse": 0.9, "off_central": 0.01},
    "dec-npae": {"off_central": 0.02},
    "dec-nn-npae": {"off_central": 0.5, "seconds": 2.0},
}
USUAL = {"rmse": 1.0, "nlpd": 1.0, "nlpd_noisy": 1.0, "coverage": 0.95, "off_central": 0.0, "seconds": 1.0}


def predicted(changes: Mapping[str, Mapping[str, float]], fleet: int | None = None) -> Rows:
    """One row per method, graph and fleet. changes: beside those that agree, in one fleet or in all."""
    rows = []
    for method in paper.PREDICTORS:
        for graph in (*prediction.GRAPHS.get(method, ("path",)), "server"):
            for agents in PLAN.fleets:
                row: dict[str, Any] = {**USUAL, "participants": 1.0, "rounds": 7.0, "status": "round limit"}
                row |= AGREEING.get(method, {})
                row |= {"coverage": 0.6} if method == "poe" and agents == SMALL else {}
                row |= changes.get(method, {}) if fleet in (None, agents) else {}
                row["participants"] *= agents
                rows.append({**row, "method": method, "graph": graph, "agents": agents})
    return grouped(rows, *prediction.GROUPS)


Judge = Callable[[prediction.Plan, Rows], Finding]


@pytest.mark.parametrize("number", range(7))
def test_every_claim_about_prediction_can_agree(number: int) -> None:
    assert prediction.findings(PLAN, predicted({}))[number].verdict == "agrees"


@pytest.mark.parametrize(
    ("judge", "changes", "fleet", "verdict"),
    [
        (prediction.same_mean, {"gpoe": {"rmse": 1.0 + 0.9e-6}}, LARGE, "agrees"),
        (prediction.same_mean, {"gpoe": {"rmse": 1.0 + 1.1e-6}}, LARGE, "differs"),
        (prediction.same_mean, {"poe": {"coverage": 0.599}}, LARGE, "agrees"),
        (prediction.same_mean, {"poe": {"coverage": 0.6}}, LARGE, "in part"),
        (prediction.same_mean, {"poe": {"coverage": 0.901}}, LARGE, "in part"),
        (prediction.decentralized_equals, {"dec-rbcm": {"off_central": 0.9e-3}}, LARGE, "agrees"),
        (prediction.decentralized_equals, {"dec-rbcm": {"off_central": 1.1e-3}}, LARGE, "differs"),
        (prediction.left_out, {"dec-nn-bcm": {"rmse": 1.009}}, SMALL, "agrees"),
        (prediction.left_out, {"dec-nn-bcm": {"rmse": 1.011}}, SMALL, "differs"),
        (prediction.left_out, {"dec-nn-rbcm": {"participants": 0.69}}, None, "agrees"),
        (prediction.left_out, {"dec-nn-rbcm": {"participants": 0.71}}, None, "in part"),
        (prediction.left_out, {"dec-nn-rbcm": {"participants": 0.41}}, None, "agrees"),
        (prediction.left_out, {"dec-nn-rbcm": {"participants": 0.39}}, None, "in part"),
        (prediction.best_nlpd, {"dec-nn-gpoe": {"nlpd": 0.21}}, None, "agrees"),
        (prediction.best_nlpd, {"dec-nn-gpoe": {"nlpd": 0.19}}, None, "in part"),
        (prediction.best_nlpd, {"dec-nn-rbcm": {"nlpd": 1.01}}, None, "agrees"),
        (prediction.best_nlpd, {"dec-nn-rbcm": {"nlpd": 0.99}}, None, "in part"),
        (
            prediction.best_nlpd,
            {"dec-nn-rbcm": {"nlpd": 0.0}, "dec-nn-npae": {"nlpd": 0.05}},
            None,
            "differs",
        ),
        (prediction.npae_star, {"dec-npae-star": {"rmse": 0.999}}, SMALL, "agrees"),
        (prediction.npae_star, {"dec-npae-star": {"rmse": 1.001}}, SMALL, "in part"),
        (prediction.npae_star, {"dec-npae": {"off_central": 0.0101}}, None, "agrees"),
        (prediction.npae_star, {"dec-npae": {"off_central": 0.0099}}, None, "differs"),
        (prediction.dale, {"dec-nn-npae": {"off_central": 0.051}}, None, "agrees"),
        (prediction.dale, {"dec-nn-npae": {"off_central": 0.049}}, None, "differs"),
        (prediction.dale, {"dec-npae-star": {"seconds": 1.99}}, None, "agrees"),
        (prediction.dale, {"dec-npae-star": {"seconds": 2.01}}, None, "in part"),
        (prediction.few_rounds, {"dec-nn-grbcm": {"rounds": 14.7}}, None, "agrees"),
        (prediction.few_rounds, {"dec-nn-grbcm": {"rounds": 14.9}}, LARGE, "in part"),
        (prediction.few_rounds, {"dec-nn-grbcm": {"rounds": 14.9}}, None, "differs"),
    ],
)
def test_prediction_at_the_limits(
    judge: Judge, changes: dict[str, dict[str, float]], fleet: int | None, verdict: str
) -> None:
    assert judge(PLAN, predicted(changes, fleet)).verdict == verdict


def test_what_is_seen_names_the_numbers_behind_the_verdict() -> None:
    slow = prediction.dale(PLAN, predicted({"dec-npae-star": {"seconds": 3.0}}))
    assert "Off npae by 0.50 K (M = 10), 0.50 K (M = 40); 0 runs converged" in slow.seen
    assert "The slowest of the five: dec-npae-star." in slow.seen
    gain = "pull a product of experts to the prior"
    assert gain not in prediction.left_out(PLAN, predicted({})).seen
    assert gain in prediction.left_out(PLAN, predicted({"dec-nn-poe": {"rmse": 0.98}}, LARGE)).seen


# ---- training ----------------------------------------------------------------------------------------------

TRAINING = training.Plan((8_100,), (SMALL, LARGE), 1, 1)


def trained(
    changes: Mapping[str, Mapping[str, Any]], fleet: int | None = None, block: str = "paper"
) -> training.Groups:
    """One row per method and fleet. l_1, noise: over the truth."""
    usual = {"l_1": 1.0, "noise": 1.0, "rounds": 100, "seconds": 1.0}
    agreeing: dict[str, dict[str, float]] = {
        "apx-gp": {"l_1": 1.5, "rounds": 50},
        "gapx-gp": {"l_1": 1.05, "rounds": 50},
        "dec-apx-gp": {"l_1": 1.6},
        "dec-gapx-gp": {"l_1": 1.1},
        "c-gp": {"l_1": 1.4, "seconds": 2.0},
        "dec-c-gp": {"l_1": 1.5, "seconds": 2.0},
    }
    rows = []
    for method in paper.TRAINERS[1:]:
        for agents in TRAINING.fleets:
            row = {**usual, **agreeing.get(method, {})}
            row |= changes.get(method, {}) if fleet in (None, agents) else {}
            theta = [value * row.pop(name, 1.0) for name, value in zip(NAMES, fg.PAPER_THETA, strict=True)]
            told = {"method": method, "agents": agents, "size": 8_100, "block": block, "theta": theta}
            rows.append({**row, **told, "seconds": row["seconds"] * agents})
    return training.grouped(rows, block)


NAMES = ("l_1", "l_2", "sigma_f", "noise")
JudgeTraining = Callable[[training.Plan, training.Groups], Finding]


@pytest.mark.parametrize(
    ("judge", "changes", "fleet", "verdict"),
    [
        (training.fewest_rounds, {"gapx-gp": {"rounds": 99}}, LARGE, "agrees"),
        (training.fewest_rounds, {"gapx-gp": {"rounds": 101}}, LARGE, "in part"),
        (training.fewest_rounds, {"c-gp": {"rounds": 50.5}}, LARGE, "agrees"),
        (training.fewest_rounds, {"c-gp": {"rounds": 49.5}}, LARGE, "differs"),
        (training.loses_length_scale, {}, None, "agrees"),
        (training.loses_length_scale, {"gapx-gp": {"l_1": 1.149}}, LARGE, "agrees"),
        (training.loses_length_scale, {"gapx-gp": {"l_1": 0.849}}, LARGE, "differs"),
        (training.loses_length_scale, {"gapx-gp": {"l_1": 9.0}}, SMALL, "agrees"),
        (training.loses_length_scale, {"apx-gp": {"l_1": 1.151}}, LARGE, "agrees"),
        (training.loses_length_scale, {"apx-gp": {"l_1": 1.149}}, LARGE, "in part"),
        (training.loses_length_scale, {"dec-gapx-gp": {"l_1": 1.249}}, LARGE, "agrees"),
        (training.loses_length_scale, {"dec-gapx-gp": {"l_1": 1.251}}, LARGE, "differs"),
        (training.loses_length_scale, {"dec-gapx-gp": {"l_1": 1.2}, "dec-apx-gp": {"l_1": 1.41}}, LARGE, "agrees"),
        (training.loses_length_scale, {"dec-gapx-gp": {"l_1": 1.2}, "dec-apx-gp": {"l_1": 1.39}}, LARGE, "in part"),
        (training.factorized_loses, {"apx-gp": {"l_1": 1.0}, "dec-apx-gp": {"l_1": 1.401}}, None, "agrees"),
        (training.factorized_loses, {"apx-gp": {"l_1": 1.0}, "dec-apx-gp": {"l_1": 1.399}}, None, "differs"),
        (training.best_decentralized, {"dec-gapx-gp": {"noise": 1.49}}, SMALL, "agrees"),
        (training.best_decentralized, {"dec-gapx-gp": {"noise": 1.51}}, SMALL, "differs"),
        (training.nested_is_inaccurate, {"c-gp": {"l_1": 1.21}}, LARGE, "agrees"),
        (training.nested_is_inaccurate, {"c-gp": {"l_1": 1.19}}, LARGE, "in part"),
        (training.nested_is_inaccurate, {"dec-gapx-gp": {"seconds": 1.99}}, SMALL, "agrees"),
        (training.nested_is_inaccurate, {"dec-gapx-gp": {"seconds": 2.01}}, SMALL, "in part"),
        (
            training.nested_is_inaccurate,
            {"c-gp": {"l_1": 1.19}, "gapx-gp": {"seconds": 2.01}},
            SMALL,
            "differs",
        ),
    ],
)
def test_training_at_the_limits(
    judge: JudgeTraining, changes: dict[str, dict[str, float]], fleet: int | None, verdict: str
) -> None:
    assert judge(TRAINING, trained(changes, fleet)).verdict == verdict


def test_a_remark_is_only_made_where_it_is_true() -> None:
    noise = "sigma_eps has not either"
    assert noise not in training.nested_is_inaccurate(TRAINING, trained({})).seen
    assert noise in training.nested_is_inaccurate(TRAINING, trained({"dec-c-gp": {"noise": 1.5}}, LARGE)).seen
    frugal = "as frugal as apx-gp"
    few = {"fact-gp": {"rounds": 40}, "g-fact-gp": {"rounds": 40}}
    assert frugal not in training.fewest_rounds(TRAINING, trained({})).seen
    assert frugal in training.fewest_rounds(TRAINING, trained(few)).seen


def test_runs_by_our_defaults_may_be_missing() -> None:
    blocks = {"paper": trained({}), "default": trained({}, block="default")}
    assert len(training.findings(TRAINING, blocks)) == 5
    assert len(training.findings(TRAINING, {**blocks, "default": {}})) == 4


# ---- communication -----------------------------------------------------------------------------------------


def sent(method: str, kind: str, graph: str, counted: float) -> dict[str, Any]:
    return {"method": method, "kind": kind, "graph": graph, "counted": counted, "formula": 1000, "scalars": {}}


@pytest.mark.parametrize(
    ("row", "verdicts"),
    [
        (sent("dec-apx-gp", "training", "path", 1009), "agrees, agrees, agrees, agrees"),
        (sent("dec-apx-gp", "training", "path", 1011), "differs, agrees, agrees, agrees"),
        (sent("dec-apx-gp", "training", "path", 989), "differs, agrees, agrees, agrees"),
        (sent("apx-gp", "training", "server", 1009), "agrees, agrees, agrees, agrees"),
        (sent("apx-gp", "training", "server", 1011), "agrees, in part, agrees, agrees"),
        (sent("apx-gp", "training", "server", 2259), "agrees, in part, agrees, agrees"),
        (sent("apx-gp", "training", "server", 2261), "agrees, differs, agrees, agrees"),
        (sent("apx-gp", "training", "server", 989), "agrees, differs, agrees, agrees"),
        (sent("dec-rbcm", "prediction", "grid", 1009), "agrees, agrees, agrees, agrees"),
        (sent("dec-rbcm", "prediction", "grid", 1011), "agrees, agrees, differs, agrees"),
        (sent("dec-npae-star", "prediction", "star", 991), "agrees, agrees, agrees, agrees"),
        (sent("dec-npae-star", "prediction", "star", 989), "agrees, agrees, agrees, differs"),
    ],
)
def test_communication_at_the_limits(row: dict[str, Any], verdicts: str) -> None:
    rows = [
        sent("dec-apx-gp", "training", "cycle", 1000),
        sent("apx-gp", "training", "server", 1000),
        sent("dec-poe", "prediction", "path", 1000),
        sent("dec-npae", "prediction", "path", 1000),
        row,
    ]
    found = communication.findings(rows)
    assert [finding.verdict for finding in found] == verdicts.split(", ")
    assert ("each agent adds its likelihood" in found[1].seen) == (found[1].verdict == "in part")


# ---- the committed pages -----------------------------------------------------------------------------------


def of_page(name: str, facts: Mapping[str, Any]) -> Sequence[Finding]:
    rows, settings = facts["results"], facts["settings"]
    if name == "communication":
        return communication.findings(rows)
    fleets, replications = tuple(settings["fleets"]), settings["replications"]
    if name == "prediction":
        plan = prediction.Plan("", settings["observations"], fleets, replications, settings["queries"])
        return prediction.findings(plan, grouped(rows, *prediction.GROUPS))
    blocks = {block: training.grouped(rows, block) for block in training.BLOCKS}
    return training.findings(training.Plan(tuple(settings["sizes"]), fleets), blocks)


@pytest.mark.parametrize("name", ["training", "prediction", "communication"])
def test_the_committed_pages_say_what_follows_from_their_rows(name: str) -> None:
    facts = json.loads((PAGES / name / "results.json").read_text(encoding="utf-8"))
    found = [finding.as_dict() for finding in of_page(name, facts)]
    assert [{key: finding[key] for key in ("claim", "verdict", "seen")} for finding in found] == [
        {key: finding[key] for key in ("claim", "verdict", "seen")} for finding in facts["findings"]
    ]
