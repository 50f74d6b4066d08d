"""What `recommend` answers with: the methods to use, why, and what each would cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fleetgp.advice.bill import Bill
from fleetgp.advice.link import Link
from fleetgp.advice.tables import aligned
from fleetgp.errors import check_name
from fleetgp.units import readable_bytes, readable_seconds

Task = Literal["training", "prediction"]


@dataclass(frozen=True)
class Candidate:
    """A method, what it would send, and whether it can be used.

    usual: what it sends; of a training in an assumed number of rounds, with all its starts; of an answer to all
        queries, with what is sent only once.
    least, most: bounds; the same as usual where that is exact. Of a training, most is at the default limit of rounds.
        It is None where there is no bound: dec-full-gp repeats its moments on finer grids where data ask for it.
    each: of a training, what a single round sends (an evaluation of dec-fact-gp, a grid of dec-full-gp).
    seconds: what the messages take over the link, and at least and at most (infinite without a bound); None without a
        link.
    tells: the kinds of content that are sent.
    refused: why it cannot be used here; empty if it can.
    """

    task: Task
    method: str
    usual: Bill
    least: Bill
    most: Bill | None
    seconds: tuple[float, float, float] | None
    tells: tuple[str, ...]
    refused: str = ""
    each: Bill | None = None

    @classmethod
    def of(
        cls,
        task: Task,
        method: str,
        bills: tuple[Bill, Bill, Bill | None],
        link: Link | None,
        tells: tuple[str, ...],
        refused: str,
        each: Bill | None = None,
    ) -> Candidate:
        """bills: the usual one, the least and the most."""
        usual, least, most = bills
        seconds = None
        if link is not None:
            longest = math.inf if most is None else link.seconds(most)
            seconds = link.seconds(usual), link.seconds(least), longest
        return cls(task, method, usual, least, most, seconds, tells, refused, each)

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
    >>> found = recommend([500] * 5, "path", dimension=2, link="9600 bit/s, 2 s", private="rows")
    >>> found.trainer, found.predictor, found.kernel
    ('dec-fact-gp', 'dec-nn-rbcm', 'auto')
    >>> found.candidate("dec-nn-grbcm").refused
    'it sends inputs and observations of single rows, which are private'
    >>> header, rows = found.table("training")
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
