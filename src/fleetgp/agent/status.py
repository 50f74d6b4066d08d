"""What an agent tells of itself: to `fleetgp status`, and to Prometheus."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from fleetgp.agent.agent import Agent


def status_of(agent: Agent) -> dict[str, Any]:
    """The agent's state as plain values."""
    node, names, trained, requests = agent.node, agent.description.names, agent.memory.trained, agent.requests
    activity, view = agent.activity, node.view
    members = [] if view is None else [names[member] for member in view.members]
    return {
        "agent": agent.name,
        "phase": activity.phase,
        "problem": activity.problem or activity.data_problem,
        "round": activity.round if activity.phase == "training" else node.round,
        "rounds": activity.rounds,
        "members": members,
        "missing": [name for name in names if members and name not in members],
        "theta": agent.theta,
        "disagreement": node.disagreement(),
        "trained": None
        if trained is None
        else {
            "id": trained.id,
            "by": [names[member] for member in trained.members],
            "method": trained.method,
            "status": trained.status,
            "rounds": trained.rounds,
            "kernel": agent.description.kernel_of(trained.kernel).name,
            "calibrated": None if trained.calibration is None else asdict(trained.calibration),
        },
        "neighbours": node.neighbours(),
        "bytes": sum(node.links.sent.values()),
        "told": node.links.told,
        "dropped": dict(node.links.dropped),
        "resent": node.links.resent,
        "rows": agent.data.rows,
        "new_rows": agent.new_rows,
        "questions": activity.questions,
        "waiting": requests.waiting,
        "fulfilled": requests.fulfilled,
        "outcome": requests.outcome,
        "views": activity.views,
        "seconds": time.time() - activity.began,
        "digest": agent.description.digest,
    }
