"""The roster of a fleet: who its members are, with a version number and the operator's signature.

The roster of version 0 is the list of agents in fleet.toml, which nobody signs. Each later one names the one it was
made from. An agent keeps its number: one that joins is appended, and one that left stays in the list.

Of two rosters the one with the higher version counts. Two operators may make different rosters of one version; then the
one with the lower hash counts, at all agents alike.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import FailFast, Field

from fleetgp.agent.certificates import NAME, Credentials, signature_of, signing_error
from fleetgp.agent.records import Codec, Strict
from fleetgp.errors import InputError, listed, shortened
from fleetgp.network.zenoh.links import LONGEST_ROSTER
from fleetgp.network.zenoh.session import OPERATOR

#: Hexadecimal digits of a roster's hash, and of what a digest says of it: the version, then the hash.
DIGITS, VERSION_DIGITS = 16, 8
#: No roster has a higher version.
MOST_VERSIONS = 16**VERSION_DIGITS

Text = Annotated[str, Field(max_length=4096)]
Name = Annotated[str, Field(pattern=NAME, max_length=64)]
#: "kept": it left, and its rows still count.
Standing = Literal["present", "left", "kept"]
#: Version, and a number that is larger where the hash is lower: the larger of two ranks counts.
Rank = tuple[int, int]


@dataclass(frozen=True)
class Member(Strict):
    """One agent. A link that one end lists is a link."""

    name: Name
    endpoint: Annotated[str, Field(max_length=512)]
    neighbours: Annotated[tuple[Name, ...], FailFast()] = ()
    standing: Standing = "present"


@dataclass(frozen=True)
class Roster(Strict):
    """The members of a fleet, by id. previous: the hash of the roster that this one was made from; empty for none.

    >>> base = Roster("bay", 0, "", (Member("a", "tcp/127.0.0.1:1", ("b",)), Member("b", "tcp/127.0.0.1:2")))
    >>> more = base.joined("c", "tcp/127.0.0.1:3", ["b"])
    >>> [member.name for member in more.members], more.version, more.previous == base.hash, more.rank > base.rank
    (['a', 'b', 'c'], 1, True, True)
    >>> [(member.name, member.standing, member.neighbours) for member in more.without("b").members]
    [('a', 'present', ()), ('b', 'left', ()), ('c', 'present', ())]
    """

    fleet: Text
    version: Annotated[int, Field(ge=0, lt=MOST_VERSIONS)]
    previous: Annotated[str, Field(pattern=rf"^([0-9a-f]{{{DIGITS}}})?$")]
    members: Annotated[tuple[Member, ...], FailFast(), Field(min_length=1)]

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(self.text).hexdigest()[:DIGITS]

    @property
    def text(self) -> bytes:
        """What is signed: the same bytes for the same roster."""
        return json.dumps(_ROSTERS.facts_of(self), sort_keys=True, separators=(",", ":")).encode()

    @property
    def rank(self) -> Rank:
        return rank_of(self.mark)

    @property
    def mark(self) -> str:
        """Version and hash, for a digest."""
        return f"{self.version:0{VERSION_DIGITS}x}" + (self.hash if self.version else "0" * DIGITS)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    def joined(self, name: str, endpoint: str, neighbours: Iterable[str]) -> Roster:
        """The next roster, with one more member; of one that is present, with this endpoint and these links as well."""
        links = tuple(neighbours)
        before = next((member for member in self.members if member.name == name), None)
        if before is None:
            return self._next((*self.members, Member(name, endpoint, links)))
        if before.standing == "present":
            links = tuple(dict.fromkeys((*before.neighbours, *links)))
        return self._changed(Member(name, endpoint, links))

    def without(self, name: str, *, keep_rows: bool = False) -> Roster:
        """The next roster, in which an agent has left, with its links."""
        before = next((member for member in self.members if member.name == name), None)
        if before is None:
            raise InputError(f"there is no agent {shortened(name)} in this fleet: choose one of {listed(self.names)}")
        changed = replace(before, neighbours=(), standing="kept" if keep_rows else "left")
        return self._changed(changed)

    def _changed(self, changed: Member) -> Roster:
        """With one member as it is now; this roster itself if nothing is different."""
        gone = changed.name if changed.standing != "present" else None
        members = tuple(
            changed
            if member.name == changed.name
            else replace(member, neighbours=tuple(other for other in member.neighbours if other != gone))
            for member in self.members
        )
        return self if members == self.members else self._next(members)

    def _next(self, members: tuple[Member, ...]) -> Roster:
        return Roster(self.fleet, self.version + 1, self.hash, members)


@dataclass(frozen=True)
class SignedRoster(Strict):
    """A roster as it travels and is kept. certificate, signature: of the operator; empty in a fleet without [tls]."""

    roster: Roster
    certificate: Annotated[str, Field(max_length=16_384)] = ""
    signature: Annotated[str, Field(max_length=1024, pattern=r"^[0-9a-f]*$")] = ""

    @classmethod
    def of(cls, roster: Roster, operator: Credentials | None) -> SignedRoster:
        """Sign a roster with the operator's key."""
        if operator is None:
            return cls(roster)
        certificate = operator.certificate.read_text(encoding="ascii")
        return cls(roster, certificate, signature_of(roster.text, operator.key).hex())

    def encode(self) -> bytes:
        return _SIGNED.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> SignedRoster:
        """A signed roster, or an InputError; nothing else can come out. The signature is not checked yet."""
        try:
            return _SIGNED.decode(data)
        except ValueError as error:
            raise InputError(f"expected a roster: {error}") from error

    def check(self, fleet: str, authority: Path | None, *, at: datetime.datetime | None = None) -> None:
        """An InputError where nobody should believe it.

        authority: the fleet's certificate; None: a fleet without [tls], where rosters are not signed.
        at: when the operator's certificate must be valid; None: whenever, as for a roster that was checked before.
        """
        if self.roster.fleet != fleet:
            raise InputError(f"expected a roster of the fleet {fleet!r}, got one of {shortened(self.roster.fleet)}")
        if not self.roster.version:
            raise InputError("expected a roster of version 1 or higher: version 0 is the list in fleet.toml")
        if authority is None:
            return
        if not self.signature:
            raise InputError("expected a roster with the operator's signature, got one without")
        signature, text = bytes.fromhex(self.signature[: len(self.signature) // 2 * 2]), self.roster.text
        wrong = signing_error(text, signature, self.certificate.encode(), authority, OPERATOR, at)
        if wrong:
            raise InputError(f"the roster of version {self.roster.version} is not the operator's: {wrong}")


_ROSTERS = Codec(Roster, LONGEST_ROSTER)
_SIGNED = Codec(SignedRoster, LONGEST_ROSTER)


def rank_of(mark: str) -> Rank:
    """What a digest says of a roster, to compare it with another.

    >>> base, first = "0" * 24, "00000001" + "a" * 16
    >>> rank_of(first) > rank_of(base), rank_of("00000001" + "0" * 16) > rank_of(first), rank_of("nonsense")
    (True, True, (0, 0))
    """
    try:
        return int(mark[:VERSION_DIGITS], 16), -int(mark[VERSION_DIGITS:], 16)
    except ValueError:
        return 0, 0


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def document_of(signed: SignedRoster) -> dict[str, Any]:
    """As plain values, for a request."""
    document: dict[str, Any] = _SIGNED.facts_of(signed)
    return document
