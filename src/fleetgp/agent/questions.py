"""A question that somebody asked an agent, and the fleet's answer as it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleetgp.agent.agenda import Question, Trained
from fleetgp.agent.description import Description
from fleetgp.agent.membership import View
from fleetgp.prediction import Prediction


@dataclass(eq=False)
class Asked:
    """deadline: on the monotonic clock; seconds: what was promised.  reply: tells {"answer": ...} or {"error": ...}.

    tries: how often the fleet has begun to answer.
    """

    question: Question
    seconds: float
    deadline: float
    reply: Callable[[dict[str, Any]], None]
    tries: int = 0


def told_answer(found: Prediction, model: Trained, view: View, description: Description) -> dict[str, Any]:
    """The answer of the agent that was asked, and how it came about."""
    names = [description.names[member] for member in view.members]
    return {
        "mean": found.means[0].tolist(),
        "variance": found.variances[0].tolist(),
        "participants": found.participants.sum(axis=0).tolist(),
        "said": dict(zip(names, found.participants.sum(axis=1).tolist(), strict=True)),
        "members": names,
        "missing": [name for name in description.names if name not in names],
        "method": found.method,
        "status": found.status,
        "rounds": found.rounds,
        "iterations": int(found.solver_rounds.max(initial=0)),
        "jitter": found.jitter,
        "bytes": found.ledger.bytes,
        "theta": model.theta,
        "trained": {
            "by": [description.names[member] for member in model.members],
            "method": model.method,
            "status": model.status,
        },
    }
