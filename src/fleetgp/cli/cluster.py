"""--cluster and --workers: where the agents of a fleet are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fleetgp.cli.variadic import OPTIONAL
from fleetgp.errors import InputError

CLUSTER = Annotated[
    str | None,
    typer.Option(
        metavar=OPTIONAL,
        help="Compute on a Ray cluster instead of in this process: the one at this host:port; without an address the "
        "one that is running here (`ray start --head`), or else a local one, for this command alone.",
    ),
]
WORKERS = Annotated[
    int | None,
    typer.Option(help="With --cluster: how many processes share the agents. (default: one per core)", min=1),
]


@dataclass(frozen=True)
class Cluster:
    """cluster: an address, or nothing for any; None: this process."""

    cluster: CLUSTER = None
    workers: WORKERS = None

    @property
    def backend(self) -> dict[str, Any]:
        """What `Fleet` takes."""
        if self.cluster is None:
            if self.workers is not None:
                raise InputError("--workers is for --cluster: give that as well, or leave it out")
            return {}
        return {"backend": "ray", "workers": self.workers, "address": self.cluster or None}
