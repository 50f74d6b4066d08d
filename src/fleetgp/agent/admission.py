"""Newer rosters, from the operator or from other agents: checked, kept on disk, handed on and taken over."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

from fleetgp.agent.description import Description
from fleetgp.agent.logs import Log
from fleetgp.agent.requests import Reply
from fleetgp.agent.roster import SignedRoster, now
from fleetgp.agent.threads import Inbox
from fleetgp.errors import FleetGPError, InputError
from fleetgp.files import write_private

#: Rosters that may wait to be looked at.
WAITING = 4
#: Refused rosters that are remembered, so that each is logged once.
MOST_REFUSED = 64


class Admission:
    """Takes in rosters, one after the other, in a thread of its own: checking one takes longer than a hello may.

    path: where the newest is kept.
    spread(data): sends a roster to all that this agent is connected with.
    adopted(description): called with the newer description, once it is on disk.
    """

    def __init__(
        self,
        description: Description,
        path: Path,
        log: Log,
        spread: Callable[[bytes], None],
        adopted: Callable[[Description], None],
    ) -> None:
        self._description, self._path, self._log = description, path, log
        self._spread, self._adopted = spread, adopted
        self._refused: set[bytes] = set()
        self._inbox = Inbox()

    def put(self, data: bytes, reply: Reply | None = None) -> None:
        """Have a roster looked at. reply: for the operator, who brings it; what other agents send is not answered."""
        taken = self._inbox.put(lambda: self._look(data, reply), source="operator" if reply else "agents", most=WAITING)
        if not taken and reply is not None:
            reply({"error": f"{WAITING} rosters wait here already: try again later"})

    def work(self, ending: threading.Event) -> None:
        def failed(error: Exception) -> None:  # the operator is gone, say
            self._log.warn("nobody there to answer", error=f"{type(error).__name__}: {error}")

        self._inbox.serve(ending, failed)

    def wake(self) -> None:
        self._inbox.put(lambda: None)

    def _look(self, data: bytes, reply: Reply | None) -> None:
        try:
            newer = self.take(data)
        except FleetGPError as error:
            self._refuse(data, str(error))
            if reply is not None:
                reply({"error": str(error), "wrong": isinstance(error, InputError)})
            return
        except OSError as error:
            self._log.error("roster not kept", error=str(error))  # it will come again
            if reply is not None:
                reply({"error": f"the roster cannot be written: {error}"})
            return
        if reply is not None:
            reply({"answer": {"version": self._description.roster.version}})
        if newer is not None:
            self._adopted(newer)

    def take(self, data: bytes) -> Description | None:
        """Keep a newer roster, and return the fleet with it; None if this agent has it already.

        An InputError if it is older, of another fleet, not the operator's, or not of a fleet that can be.
        """
        signed = SignedRoster.decode(data)
        roster, own = signed.roster, self._description.roster
        if roster.fleet == own.fleet and roster.rank == own.rank:
            return None
        signed.check(own.fleet, self._description.authority, at=now())
        if roster.rank < own.rank:
            raise InputError(
                f"expected a roster newer than version {own.version}, got "
                + (f"version {roster.version}" if roster.version != own.version else "another of this version")
            )
        newer = self._description.with_roster(signed)
        if roster.version == own.version or (roster.version == own.version + 1 and roster.previous != own.hash):
            why = "it was not made from the roster before: if two operators changed it, repeat what is missing"
            self._log.warn("another roster", version=roster.version, before=own.version, why=why)
        write_private(self._path, data)
        self._description = newer
        facts = {"version": roster.version, "members": newer.members, "left": newer.left}
        self._log("roster taken over", **facts)
        self._spread(data)
        return newer

    def _refuse(self, data: bytes, why: str) -> None:
        """Log it once: the same one may come from every neighbour, again and again."""
        digest = hashlib.sha256(data).digest()
        if digest not in self._refused and len(self._refused) < MOST_REFUSED:
            self._refused.add(digest)
            self._log.warn("roster refused", why=why)
