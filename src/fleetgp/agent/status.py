"""What an agent tells of itself: to `fleetgp status`, to the page, and to Prometheus."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import Any

import numpy as np

from fleetgp.agent.agent import Agent
from fleetgp.errors import InputError

#: Rows that an agent shows at most.
MOST_ROWS = 2_000


def status_of(agent: Agent, after: int = 0) -> dict[str, Any]:
    """The agent's state as plain values. after: the number of the last event that the asker has heard of."""
    node, names, trained, requests = agent.node, agent.description.names, agent.memory.trained, agent.requests
    activity, view = agent.activity, node.view
    members = [] if view is None else [names[member] for member in view.members]
    return {
        "agent": agent.name,
        "pid": os.getpid(),
        "phase": activity.phase,
        "problem": activity.problem or activity.data_problem or agent.data.journal.problem,
        "round": activity.round if activity.phase == "training" else node.round,
        "rounds": activity.rounds,
        "agents": list(names),
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
        "sent": {names[neighbour]: size for neighbour, size in sorted(node.links.sent.items())},
        "kinds": dict(activity.kinds),
        "dropped": dict(node.links.dropped),
        "resent": node.links.resent,
        "rows": agent.data.rows,
        "missing_rows": agent.data.journal.missing_rows,
        "new_rows": agent.new_rows,
        "place": agent.data.place,
        "shows_rows": agent.description.agents[agent.id].show_rows,
        "questions": activity.questions,
        "waiting": requests.waiting,
        "fulfilled": requests.fulfilled,
        "outcome": requests.outcome,
        "views": activity.views,
        "began": activity.began,
        "seconds": time.time() - activity.began,
        "events": agent.log.recent(after),
        "digest": agent.description.digest,
    }


def shown_rows(agent: Agent) -> dict[str, Any]:
    """The inputs and targets of an agent that shows them: all, or some that are spread over all."""
    if not agent.description.agents[agent.id].show_rows:
        raise InputError(
            f"{agent.name} does not show its rows: `show_rows = true` in its own fleet.toml would allow it"
        )
    data = agent.data.shard
    inputs, targets = data.inputs, data.values
    kept = np.unique(np.linspace(0, len(targets) - 1, min(len(targets), MOST_ROWS)).round().astype(int))
    return {"inputs": inputs[kept].tolist(), "targets": targets[kept].tolist(), "of": len(targets)}
