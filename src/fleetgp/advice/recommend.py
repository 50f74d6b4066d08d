"""Which methods a fleet should use: a few rules over facts, which it says, and the costs of all that it could use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from fleetgp.advice.advice import Advice, Candidate
from fleetgp.advice.bill import NOTHING, Bill
from fleetgp.advice.facts import Facts, facts_of
from fleetgp.advice.link import Link, as_link
from fleetgp.advice.prediction_costs import Asking, prediction_cost
from fleetgp.advice.training_costs import training_cost
from fleetgp.engines.expert import MOST_DENSE
from fleetgp.errors import InputError, check_name
from fleetgp.fleet import Fleet
from fleetgp.fleet.named import AgentName, check_agent
from fleetgp.fleet.privacy import Private, check_private, kinds_of_prediction, kinds_of_training, refusal
from fleetgp.given import check_whole
from fleetgp.kernels.stationary import Kernel
from fleetgp.prediction.methods import METHODS as PREDICTORS
from fleetgp.training.methods import METHODS as TRAINERS
from fleetgp.units import readable_seconds

Accuracy = Literal["cheap", "balanced", "best"]
ACCURACIES: tuple[Accuracy, ...] = get_args(Accuracy)
#: The exact GP of all data is worth so many times the seconds of dec-fact-gp, where these matter.
WORTH = 3.0
#: Inputs up to which moments are short enough to be sent.
FEW_INPUTS = 2
#: Seconds after which a training is called long.
LONG = 3600.0
#: Points of an answer whose costs are added up, block by block.
MOST_QUERIES = 10_000_000
ROUGH = ("matern12", "matern32")


def recommend(
    data: Fleet | Facts | Sequence[Any],
    graph: object = None,
    *,
    link: str | Link | None = None,
    private: Private | None = None,
    kernel: str | Kernel | None = None,
    accuracy: Accuracy = "balanced",
    queries: int = 100,
    agent: AgentName | None = None,
    dimension: int | None = None,
) -> Advice:
    """Which trainer and predictor to use, why, and what all of them would cost on the network.

    data: a Fleet, a list of (X_i, y_i), or how many rows each agent has, with dimension for how many inputs there are;
        or all that in `Facts`.
    graph: as of a Fleet, "path" if none is given; a Fleet has its own.
    link: what the links are like, as "9600 bit/s, 2 s": see `Link`. Then there are seconds as well.
    private: what must not be told to others: "rows" of the data; "sums", rows and sums over them (moments), which of
        few rows are the rows; "likelihoods", these and values of likelihoods. None: anything may be told, unless the
        fleet was made with private. "rows" lets moments pass only of agents with millions of rows.
    kernel: if you know it; of a Fleet its own.
    accuracy: "cheap" (few bytes), "balanced" or "best".
    queries: how many points an answer has.  agent: the only agent that needs it; None: all do.

    Costs are exact where they follow from the graph and the sizes. How many rounds a training takes depends on the
    data: `usual` assumes a number, and `most` is at the default limit of rounds. What an answer of dec-nn- methods,
    dec-nearest and NPAE sends depends on the data and the queries: `least` and `most` are bounds. Answers are those
    after a training by the recommended trainer. Nothing is sent, and nothing is trained.

    >>> found = recommend([200] * 10, "path", dimension=2, kernel="se")
    >>> found.trainer, found.predictor, found.prediction.usual.bytes
    ('dec-full-gp', 'dec-full-gp', 0)
    """
    facts = data if isinstance(data, Facts) else facts_of(data, graph, dimension=dimension, kernel=kernel)
    speed = as_link(link)
    if private is None and isinstance(data, Fleet):
        private = data.private
    check_private(private)
    check_whole("queries", queries, least=1, most=MOST_QUERIES)
    check_name("accuracy", accuracy, ACCURACIES)
    asker = None if agent is None else check_agent(agent, facts.labels or facts.agents)
    training = [_trainer(name, facts, speed, private) for name, row in TRAINERS.items() if row.decentralized]
    trainer, why = _chosen_trainer(training, facts, speed, private, accuracy)
    asking = Asking(queries, asker, trainer)
    answers = [_predictor(name, facts, speed, private, asking) for name, row in PREDICTORS.items() if row.decentralized]
    predictor, more = _chosen_predictor(trainer, facts, private, accuracy)
    name = "auto" if facts.kernel is None else facts.kernel.name
    why += [*more, *_about(facts, speed, training, trainer)]
    found = (*training, *answers)
    return Advice(trainer, predictor, name, "auto", tuple(why), found, facts.agents, facts.rows, queries, speed)


# ---- the candidates ----------------------------------------------------------------------------------------------


def _trainer(name: str, facts: Facts, link: Link | None, private: Private | None) -> Candidate:
    row = TRAINERS[name]
    refused, each = refusal(row, private, rows=min(facts.sizes)), None
    bills: tuple[Bill, Bill, Bill | None] = (NOTHING, NOTHING, NOTHING)
    if row.meet == "moments":
        refused = refused or _without_moments(facts)
    try:
        cost = training_cost(name, facts)
        bills, each = (cost.total(), cost.least, cost.most), cost.each
    except InputError as error:
        refused = refused or str(error)
    return Candidate.of("training", name, bills, link, kinds_of_training(row), refused, each)


def _predictor(name: str, facts: Facts, link: Link | None, private: Private | None, asking: Asking) -> Candidate:
    row = PREDICTORS[name]
    refused, bills = refusal(row, private, facts.kernel, rows=min(facts.sizes)), (NOTHING, NOTHING, NOTHING)
    if row.rule == "full-gp":
        refused = refused or _without_moments(facts)
    try:
        cost = prediction_cost(name, facts, asking)
        bills = cost.total, cost.least, cost.most
    except InputError as error:
        refused = refused or str(error)
    return Candidate.of("prediction", name, bills, link, kinds_of_prediction(row, facts.kernel), refused)


def _without_moments(facts: Facts) -> str:
    """Why there is no GP of all data by their moments; empty if there may be one."""
    if facts.kernel is None:
        return 'it needs kernel="se", and the kernel is not known yet'
    if not facts.smooth:
        return f'it needs kernel="se", got {facts.kernel.name}'
    if facts.noise_model.differs:
        return "it needs one noise for all rows, and here it differs"
    return ""


# ---- the rules ---------------------------------------------------------------------------------------------------


def _chosen_trainer(
    candidates: Sequence[Candidate], facts: Facts, link: Link | None, private: Private | None, accuracy: Accuracy
) -> tuple[str, list[str]]:
    """The trainer, and why."""
    of = {one.method: one for one in candidates}
    whole, fact = of["dec-full-gp"], of["dec-fact-gp"]
    if not fact.refused:
        if not whole.refused and facts.dimension <= FEW_INPUTS and accuracy != "cheap":
            slow = whole.seconds is not None and fact.seconds is not None and whole.seconds[0] > WORTH * fact.seconds[0]
            if not slow or accuracy == "best":
                return whole.method, [
                    "dec-full-gp is the exact GP of all data at every agent: the field is smooth (se), it has "
                    f"{facts.dimension} input{'s' * (facts.dimension > 1)}, and sums over the data may be told. Of an "
                    "agent with few rows these sums tell the rows."
                ]
        why = ["dec-fact-gp tells no row: it adds up likelihoods and their derivatives along a tree, in few steps."]
        if not whole.refused:
            why.append(
                "dec-full-gp would be exact, but its moments are long: too long for few bytes, for links like these, "
                'or for so many inputs. accuracy="best" takes it for up to two inputs.'
            )
        return fact.method, why
    return "dec-apx-gp", [
        "dec-apx-gp tells nothing of a training but theta, to neighbours alone, and maxima over the fleet. It takes "
        "many more rounds than dec-fact-gp, which tells sums of likelihoods."
    ]


def _chosen_predictor(trainer: str, facts: Facts, private: Private | None, accuracy: Accuracy) -> tuple[str, list[str]]:
    """The predictor, and why."""
    if trainer == "dec-full-gp":
        return "dec-full-gp", ["After it every agent answers alone by dec-full-gp: no message at all."]
    if private is not None:
        return "dec-nn-rbcm", [
            "dec-nn-rbcm tells what agents believe at the queries, and no row. Its intervals are too narrow: look at "
            "the coverage by fg.verify, which runs here. fleet.calibrate mends them, and sends no input of a row if "
            'the fleet was made with private="rows".'
        ]
    if accuracy == "cheap":
        return "dec-nn-rbcm", ["dec-nn-rbcm sends least. Its intervals are too narrow: fleet.calibrate mends them."]
    if accuracy == "best" and (facts.kernel is None or facts.kernel.name in ROUGH):
        return "dec-nearest", [
            "dec-nearest answers from the 30 nearest rows of the whole fleet, as one agent with all data would: the "
            "best for rough fields. These rows are sent to the root of the tree."
        ]
    return "dec-nn-grbcm", [
        "dec-nn-grbcm is accurate and well calibrated. It shares a sample of N_i/M rows of each agent, once."
    ]


def _about(facts: Facts, link: Link | None, training: Sequence[Candidate], trainer: str) -> list[str]:
    """What else follows from the facts."""
    found = []
    if facts.agents == 1:
        found.append("There is one agent: nothing is sent.")
    if facts.kernel is None:
        found.append(
            f'How rough the field is is not known: kernel="auto" compares {facts.compared} kernels on rows that agents '
            "hide, and trains with each first: that is in the cost. If it chooses se, ask again with it."
        )
    largest = max(facts.sizes)
    if largest > MOST_DENSE and not (facts.smooth and facts.dimension <= FEW_INPUTS + 1):
        found.append(
            f'engine="auto" is the approximate "vecchia" for agents with more than {MOST_DENSE:,} rows (the largest '
            f"has {largest:,}); fit.approximation says how good. They train on samples first."
        )
    chosen = next(one for one in training if one.method == trainer)
    if link is not None and chosen.seconds is not None and chosen.seconds[0] > LONG:
        found.append(
            f"The messages of a training take about {readable_seconds(chosen.seconds[0])}. With theta0 from an earlier "
            "training there is one start instead of three, and about a third of them."
        )
    found.append("Methods without dec- in their names need a central node, which this graph does not have.")
    return found
