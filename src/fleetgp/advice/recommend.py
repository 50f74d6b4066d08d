"""Which methods a fleet should use: a few rules with their reasons, and the costs of all methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fleetgp.advice.costs import Asking, prediction_cost, training_cost
from fleetgp.advice.facts import Facts, facts_of
from fleetgp.advice.verify import aligned
from fleetgp.engines.expert import MOST_DENSE
from fleetgp.errors import InputError, NumericalError, check_name
from fleetgp.fleet import Fleet
from fleetgp.fleet.privacy import PREDICTOR, Private, check_private, kinds_of_prediction, refusal
from fleetgp.fleet.queries import AgentName, check_agent
from fleetgp.kernels.stationary import Kernel
from fleetgp.network.counting import NOTHING, Bill, Link, as_link
from fleetgp.network.ledger import KINDS
from fleetgp.prediction.registry import METHODS as PREDICTORS
from fleetgp.training.methods import METHODS as TRAINERS
from fleetgp.units import readable_bytes, readable_seconds
from fleetgp.validation import check_whole

Task = Literal["training", "prediction"]
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


@dataclass(frozen=True)
class Candidate:
    """A method, what it would send, and whether it can be used.

    usual: what it sends; of a training in an assumed number of rounds, with all its starts; of an answer to all
        queries, with what is sent only once.
    least, most: bounds; the same as usual where that is exact. Of a training, most is at the default limit of rounds.
        It is None where there is no bound: dec-full-gp repeats its moments on finer grids where data ask for it.
    each: of a training, what a single round sends (an evaluation of dec-fact-gp, a grid of dec-full-gp).
    tells: the kinds of content that are sent.
    refused: why it cannot be used here; empty if it can.
    link: over which links; None if nothing was said of them.
    """

    task: Task
    method: str
    usual: Bill
    least: Bill
    most: Bill | None
    tells: tuple[str, ...]
    refused: str = ""
    each: Bill | None = None
    link: Link | None = None

    @property
    def seconds(self) -> tuple[float, float, float] | None:
        """What the messages take over the link, and at least and at most (infinite without a bound); None without a
        link.
        """
        if self.link is None:
            return None
        longest = math.inf if self.most is None else self.link.seconds(self.most)
        return self.link.seconds(self.usual), self.link.seconds(self.least), longest

    @property
    def facts(self) -> dict[str, Any]:
        """For programs."""
        bills = {"usual": self.usual, "least": self.least, "most": self.most, "each": self.each}
        names = ("rounds", "messages", "bytes", "busiest")
        costs = {
            word: None if bill is None else {name: round(getattr(bill, name)) for name in names}
            for word, bill in bills.items()
        }
        times = None
        if self.seconds is not None:
            finite = [time if math.isfinite(time) else None for time in self.seconds]
            times = dict(zip(("usual", "least", "most"), finite, strict=True))
        return {
            "task": self.task,
            "method": self.method,
            "refused": self.refused,
            "tells": list(self.tells),
            **costs,
            "bytes_by_kind": {kind: round(size) for kind, size in self.usual.kinds.items()},
            "seconds": times,
        }

    @property
    def row(self) -> list[str]:
        """For people: method, rounds, bytes and how many they may become, those of the busiest link, and seconds."""
        usual = readable_bytes(round(self.usual.bytes))
        if self.most is None:
            usual += " or more"
        elif self.most != self.usual:
            usual += f" (at most {readable_bytes(round(self.most.bytes))})"
        cells = [
            self.method,
            f"{self.usual.rounds:,.0f}",
            usual,
            readable_bytes(round(self.usual.busiest)),
        ]
        return cells if self.seconds is None else [*cells, readable_seconds(self.seconds[0])]


@dataclass(frozen=True)
class Advice:
    """Which methods to use for a fleet, and why. Print it.

    trainer, predictor: names of methods.  kernel, engine: what to give to the fleet, and to `train` and `predict`.
    why: sentences.  candidates: all methods without a central node, with what they would send.
    agents, rows, queries: what it is for.  link: over which links; None if nothing was said of them.

    >>> from fleetgp import recommend
    >>> result = recommend([500] * 5, "path", dimension=2, link="9600 bit/s, 2 s", private="rows")
    >>> result.trainer, result.predictor, result.kernel
    ('dec-fact-gp', 'dec-summary', 'auto')
    >>> result.candidate("dec-nn-grbcm").refused
    'it sends inputs and observations of single rows, which are private'
    >>> header, rows = result.table("training")
    >>> header, [row[1] for row in rows if row[0] == "*"]
    (['', 'training', 'rounds', 'bytes in all', 'busiest link', 'over the link'], ['dec-fact-gp'])
    """

    trainer: str
    predictor: str
    kernel: str
    engine: str
    why: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    agents: int
    rows: int
    queries: int
    link: Link | None = None

    def candidate(self, method: str, task: Task | None = None) -> Candidate:
        """One of the candidates; of a name that both a trainer and a predictor have, the trainer unless task says so.

        An InputError for a name that is not among them.
        """
        if task is not None:
            check_name("task", task, get_args(Task))
        known = [one for one in self.candidates if task in (None, one.task)]
        check_name("candidate", method, [one.method for one in known])
        return next(one for one in known if one.method == method)

    @property
    def training(self) -> Candidate:
        """That of the trainer."""
        return self.candidate(self.trainer, "training")

    @property
    def prediction(self) -> Candidate:
        """That of the predictor."""
        return self.candidate(self.predictor, "prediction")

    @property
    def facts(self) -> dict[str, Any]:
        """For programs: plain numbers, texts and lists."""
        return {
            "trainer": self.trainer,
            "predictor": self.predictor,
            "kernel": self.kernel,
            "engine": self.engine,
            "why": list(self.why),
            "agents": self.agents,
            "rows": self.rows,
            "queries": self.queries,
            "link": None if self.link is None else self.link.text,
            "candidates": [one.facts for one in self.candidates],
        }

    def table(self, task: Task) -> tuple[list[str], list[list[str]]]:
        """The header and the rows for people; the one that is recommended has a star."""
        check_name("task", task, get_args(Task))
        chosen = self.trainer if task == "training" else self.predictor
        header = ["", task, "rounds", "bytes in all", "busiest link", *(["over the link"] if self.link else [])]
        usable = [one for one in self.candidates if one.task == task and not one.refused]
        return header, [["*" if one.method == chosen else "", *one.row] for one in usable]

    @property
    def refusals(self) -> list[str]:
        """What cannot be used, and why: one line for each reason."""
        reasons: dict[tuple[str, str], list[str]] = {}
        for one in self.candidates:
            if one.refused:
                reasons.setdefault((one.task, one.refused), []).append(one.method)
        return [f"{task} by {', '.join(methods)}: {why}" for (task, why), methods in reasons.items()]

    @property
    def legend(self) -> str:
        """What the tables are about."""
        return (
            "* recommended. Training: from all starts, with an assumed number of rounds, which depends on the data; at "
            f"most: at the default limit of rounds. Prediction: {self.queries:,} points, asked first after a training "
            f"by {self.trainer}."
        )

    def __str__(self) -> str:
        use = f'Use fg.Fleet(.., kernel="{self.kernel}"), train("{self.trainer}"), predict(.., "{self.predictor}").'
        parts = [use, *(f"- {sentence}" for sentence in self.why)]
        for task in get_args(Task):
            parts += ["", aligned(*self.table(task), left=2)]
        parts += ["", self.legend, *(f"Not for you: {line}." for line in self.refusals)]
        return "\n".join(parts)


# ---- the recommendation ----------------------------------------------------------------------------------------------


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
    """Recommend a trainer and a predictor, say why, and count what all of them would send.

    data: a Fleet, a list of (X_i, y_i), or how many rows each agent has, with dimension for how many inputs there are;
        or all that in `Facts`.
    graph: as of a Fleet, "path" if none is given; a Fleet has its own.
    link: what the links are like, as "9600 bit/s, 2 s": see `Link`. Then there are seconds as well.
    private: what no other agent may receive: "rows" of the data; "sums", rows and sums over them (moments), which of
        few rows are the rows; "likelihoods", these and values of likelihoods. None: anything may be sent, unless the
        fleet was made with private. "rows" lets moments pass only of agents with millions of rows.
    kernel: if you know it; of a Fleet its own.
    accuracy: "cheap" (few bytes), "balanced" or "best".
    queries: how many points an answer has.  agent: the only agent that needs it; None: all do.

    Costs are counted: the trainers and predictors run on stand-in agents over a network that counts bytes. Nothing is
    sent, and the data are not used. Costs are exact where they follow from the graph, the sizes and the model. The
    number of rounds of a training depends on the data: `usual` assumes a number, and `most` is at the default limit of
    rounds. What an answer of dec-summary, dec-nn- methods, dec-nearest and NPAE sends depends on the data and the
    queries: `least` and `most` are bounds. Answers are those after a training by the recommended trainer.

    >>> result = recommend([200] * 10, "path", dimension=2, kernel="se")
    >>> result.trainer, result.predictor, result.prediction.usual.bytes
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
    result = (*training, *answers)
    return Advice(trainer, predictor, name, "auto", tuple(why), result, facts.agents, facts.rows, queries, speed)


# ---- the candidates ----------------------------------------------------------------------------------------------


def _trainer(name: str, facts: Facts, link: Link | None, private: Private | None) -> Candidate:
    row = TRAINERS[name]
    without = _without_moments(facts) if row.meet == "moments" else ""
    refused, each = refusal(row, private, rows=min(facts.sizes)) or without, None
    bills: tuple[Bill, Bill, Bill | None] = (NOTHING, NOTHING, NOTHING)
    if not without:
        try:
            cost = training_cost(name, facts)
            bills, each = (cost.total(), cost.least, cost.most), cost.each
        except (InputError, NumericalError) as error:
            refused = refused or str(error)
    return Candidate("training", name, *bills, row.kinds, refused, each, link)


def _predictor(name: str, facts: Facts, link: Link | None, private: Private | None, asking: Asking) -> Candidate:
    row = PREDICTORS[name]
    without = _without_moments(facts) if row.rule == "full-gp" else ""
    refused = refusal(row, private, facts.kernel, rows=min(facts.sizes)) or without
    bills, kinds = (NOTHING, NOTHING, NOTHING), kinds_of_prediction(row, facts.kernel)
    if not without:
        try:
            cost = prediction_cost(name, facts, asking)
            bills = cost.total, cost.least, cost.most
            kinds = tuple(kind for kind in KINDS if kind in (*kinds, *cost.most.sent))
        except (InputError, NumericalError) as error:
            refused = refused or str(error)
    return Candidate("prediction", name, *bills, kinds, refused, link=link)


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
    of = {one.method: one for one in candidates}
    whole, fact = of["dec-full-gp"], of["dec-fact-gp"]
    if not fact.refused:
        if not whole.refused and facts.dimension <= FEW_INPUTS and accuracy != "cheap":
            slow = whole.seconds is not None and fact.seconds is not None and whole.seconds[0] > WORTH * fact.seconds[0]
            if not slow or accuracy == "best":
                return whole.method, [
                    "dec-full-gp is the exact GP of all data at every agent: the field is smooth (se), it has "
                    f"{facts.dimension} input{'s' * (facts.dimension > 1)}, and sums over the data may be sent. The "
                    "sums of an agent with few rows reveal these rows."
                ]
        why = ["dec-fact-gp reveals no row: it adds up likelihoods and their derivatives along a tree, in few steps."]
        if not whole.refused:
            why.append(
                "dec-full-gp would be exact, but its moments are long: too long for few bytes, for links like these, "
                'or for so many inputs. accuracy="best" selects it for up to two inputs.'
            )
        return fact.method, why
    return "dec-apx-gp", [
        "dec-apx-gp sends nothing but theta, to neighbours alone, and maxima over the fleet. It takes many more rounds "
        "than dec-fact-gp, which sends sums of likelihoods."
    ]


def _chosen_predictor(trainer: str, facts: Facts, private: Private | None, accuracy: Accuracy) -> tuple[str, list[str]]:
    if trainer == "dec-full-gp":
        return "dec-full-gp", ["After it every agent answers alone by dec-full-gp: no message at all."]
    if private in ("sums", "likelihoods"):
        return "dec-nn-rbcm", [
            "dec-nn-rbcm sends what agents predict at the queries, and nothing else about their rows. Its intervals "
            "are too narrow: fg.verify, which runs here, shows the coverage. fleet.calibrate widens them, and sends no "
            'input of a row if the fleet was made with private="rows".'
        ]
    if accuracy == "cheap":
        return "dec-nn-rbcm", ["dec-nn-rbcm sends least. Its intervals are too narrow: fleet.calibrate widens them."]
    if accuracy == "best" and private is None and (facts.kernel is None or facts.kernel.name in ROUGH):
        return "dec-nearest", [
            "dec-nearest answers from the 120 nearest rows of the whole fleet, as one agent with all data would: the "
            "best for rough fields. These rows are sent to the root of the tree."
        ]
    return PREDICTOR, [
        "dec-summary sends no row: every agent receives, once, a summary of each other agent's rows in groups of at "
        "least five. Where each agent has an area of its own, it is as accurate as one agent with all data.",
        "Methods that send rows gain something where the agents' areas overlap: dec-nearest, which sends the rows "
        "nearest to each query, is then about as accurate as one agent with all data, and dec-nn-grbcm, which shares "
        "N_i/M rows of each agent, lies between.",
    ]


def _about(facts: Facts, link: Link | None, training: Sequence[Candidate], trainer: str) -> list[str]:
    """What else follows from the facts."""
    result = []
    if facts.agents == 1:
        result.append("There is one agent: nothing is sent.")
    if facts.kernel is None:
        result.append(
            f'The kernel is not known: kernel="auto" trains with each of {len(facts.kernels)} kernels and compares '
            "them on rows that agents hide. That is in the cost. If it chooses se, ask again with it."
        )
    largest = max(facts.sizes)
    if largest > MOST_DENSE and not (facts.smooth and facts.dimension <= FEW_INPUTS + 1):
        result.append(
            f'engine="auto" is the approximate "vecchia" for agents with more than {MOST_DENSE:,} rows (the largest '
            f"has {largest:,}); fit.approximation estimates its error. They train on samples first."
        )
    chosen = next(one for one in training if one.method == trainer)
    if link is not None and chosen.seconds is not None and chosen.seconds[0] > LONG:
        result.append(
            f"The messages of a training take about {readable_seconds(chosen.seconds[0])}. With theta0 from an earlier "
            "training there is one start instead of three, and about a third of them."
        )
    result.append("Methods without dec- in their names need a central node, which this graph does not have.")
    return result
