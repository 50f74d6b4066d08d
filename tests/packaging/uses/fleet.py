"""The extra "fleet": certificates are made, a description is read, and one of its agents starts, with its links."""

from pathlib import Path

import numpy as np

import fleetgp as fg
from fleetgp.agent import service
from fleetgp.agent.agent import Agent
from fleetgp.agent.certificates import days_left, make_certificate
from fleetgp.agent.description import read_description
from fleetgp.agent.logs import Log
from fleetgp.operator.launch import fleet_text, free_ports

assert service.MOST_ROWS > 0
assert days_left(make_certificate("keys", "boat1", days=365).certificate) > 364

field = fg.synthetic_field(40, seed=1)
x, y = field.inputs.T
np.savez("data.npz", x=x, y=y, temperature=field.observations)  # other files need the extra "data"
names, endpoints = ["boat1", "boat2"], [f"tcp/127.0.0.1:{port}" for port in free_ports(2)]
Path("fleet.toml").write_text(fleet_text("boats", names, endpoints, ["data.npz"] * 2, [(0, 1)]), encoding="utf-8")
description = read_description("fleet.toml")
agent = Agent(description, "boat1", Log("boat1", file=Path("boat1.log")))
agent.close()
assert description.names == tuple(names)
