"""A trained fleet as a folder: JSON for people, safetensors for numbers, nothing that runs. Needs the extra "data".

model.json               what it is: agents, graph, hyperparameters, how it was trained
training.safetensors     every agent's estimate, and how it came there
ledger.json              what was sent in training, by edge and kind of content
agents/0000.safetensors  inputs and observations of one agent, a file each; not of data larger than memory
moments.safetensors      after dec-full-gp the moments of all data, and what each agent's data are like
"""

from __future__ import annotations

FORMAT = "fleetgp-model"
#: Raised when an older FleetGP could not read the folder any more.
VERSION = 4
#: Of folders without private rows: with all rows, and with moments, whose mean is zero, whose inputs are as given and
#: whose noise is one for all; and with another mean, other inputs or noise.
VERSION_WITH_ROWS, VERSION_WITH_MOMENTS, VERSION_WITH_MEAN = 1, 2, 3
DESCRIPTION = "model.json"
TRAINING = "training.safetensors"
LEDGER = "ledger.json"
MOMENTS = "moments.safetensors"
AGENTS = "agents"
FILES = (DESCRIPTION, TRAINING, LEDGER, MOMENTS)


def agent_file(number: int) -> str:
    return f"{AGENTS}/{number:04d}.safetensors"
