"""Rosters: who signed them, which of two counts, and what becomes of a description with one."""

from __future__ import annotations

import datetime
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetgp.agent.admission import Admission
from fleetgp.agent.certificates import Credentials, make_certificate
from fleetgp.agent.description import ROSTER, Description, read_description
from fleetgp.agent.logs import Log
from fleetgp.agent.roster import Member, Roster, SignedRoster, now
from fleetgp.errors import GraphError, InputError
from fleetgp.network.zenoh.session import OPERATOR
from fleetgp.operator.launch import fleet_text

BASE = Roster("bay", 0, "", tuple(Member(f"a{k}", f"tls/127.0.0.1:{7000 + k}", (f"a{(k + 1) % 3}",)) for k in range(3)))
JOINED = BASE.joined("a3", "tls/127.0.0.1:7003", ["a1"])


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bay") / "keys"
    for name in (OPERATOR, "a0", "a1", "a2"):
        make_certificate(folder, name)
    return folder


def operator(keys: Path, name: str = OPERATOR) -> Credentials:
    return Credentials.of(keys, name)


def describe(folder: Path, keys: Path | None) -> Description:
    ends = [member.endpoint if keys else member.endpoint.replace("tls", "tcp") for member in BASE.members]
    text = fleet_text("bay", [m.name for m in BASE.members], ends, ["a.csv"] * 3, [(0, 1), (1, 2), (2, 0)])
    file = folder / "fleet.toml"
    file.write_text(text + ("" if keys is None else f'\n[tls]\nfolder = "{keys}"\n'), encoding="utf-8")
    return read_description(file)


# ---- signatures ----------------------------------------------------------------------------------------------------


def test_what_the_operator_signed_is_believed(keys: Path) -> None:
    signed = SignedRoster.of(JOINED, operator(keys))
    read = SignedRoster.decode(signed.encode())
    assert read == signed
    read.check("bay", keys / "authority.crt", at=now())


def wrong(signed: SignedRoster, keys: Path, elsewhere: Path) -> list[tuple[SignedRoster, str]]:
    roster = signed.roster
    members = (*roster.members[:3], replace(roster.members[3], endpoint="tls/127.0.0.1:9999"))
    spoilt = signed.signature[:-2] + f"{int(signed.signature[-2:], 16) ^ 1:02x}"
    return [
        (replace(signed, roster=replace(roster, members=members)), "was changed"),
        (replace(signed, roster=replace(roster, version=7)), "was changed"),
        (replace(signed, signature=spoilt), "was changed"),
        (replace(signed, signature=""), "without"),
        (replace(signed, certificate="nonsense"), "none of this fleet's authority"),
        (SignedRoster.of(roster, operator(keys, "a1")), "signed by 'a1', not by the operator"),
        (SignedRoster.of(roster, operator(elsewhere)), "another authority"),
        (SignedRoster.of(replace(roster, fleet="gulf"), operator(keys)), "of the fleet 'bay'"),
        (SignedRoster.of(BASE, operator(keys)), "version 1 or higher"),
    ]


def test_nothing_else_is(keys: Path, tmp_path: Path) -> None:
    make_certificate(tmp_path / "keys", OPERATOR)
    for signed, why in wrong(SignedRoster.of(JOINED, operator(keys)), keys, tmp_path / "keys"):
        with pytest.raises(InputError, match=why):
            SignedRoster.decode(signed.encode()).check("bay", keys / "authority.crt", at=now())
    for data in (b"", b"{}", b"[]", b"\xff", SignedRoster(JOINED).encode()[:-1]):
        with pytest.raises(InputError, match="expected a roster"):
            SignedRoster.decode(data)


def test_the_operators_certificate_must_be_valid_when_a_roster_comes(keys: Path) -> None:
    signed = SignedRoster.of(JOINED, operator(keys))
    for years in (-2, 2):
        with pytest.raises(InputError, match=r"valid from .* only"):
            signed.check("bay", keys / "authority.crt", at=now() + datetime.timedelta(days=365 * years))
    signed.check("bay", keys / "authority.crt")  # one that was believed before


# ---- which counts --------------------------------------------------------------------------------------------------


def test_two_rosters_of_one_version_have_one_order() -> None:
    rosters = [BASE, *(BASE.joined(f"b{k}", f"tls/127.0.0.1:{8000 + k}", ["a0"]) for k in range(4))]
    rosters += [rosters[2].without("a1"), rosters[3].without("a1", keep_rows=True)]
    for order in itertools.islice(itertools.permutations(rosters), 0, 5000, 97):
        assert max(order, key=lambda roster: roster.rank).hash == max(rosters, key=lambda roster: roster.rank).hash
    assert len({roster.rank for roster in rosters}) == len(rosters)
    same = [roster for roster in rosters if roster.version == 1]
    assert max(same, key=lambda roster: roster.rank).hash == min(roster.hash for roster in same)


def test_numbers_of_agents_never_change() -> None:
    left = JOINED.without("a0").without("a2", keep_rows=True)
    again = left.joined("a4", "tls/127.0.0.1:7000", ["a3"]).joined("a0", "tls/127.0.0.1:7009", ["a4"])
    assert again.names == ("a0", "a1", "a2", "a3", "a4")
    assert [member.standing for member in again.members] == ["present", "present", "kept", "present", "present"]
    assert again.version == 5
    assert BASE.joined("a0", BASE.members[0].endpoint, ["a1"]) is BASE, "nothing changes"
    assert JOINED.joined("a3", "tls/127.0.0.1:7003", ["a2"]).members[3].neighbours == ("a1", "a2"), "one more link"


# ---- descriptions --------------------------------------------------------------------------------------------------


def test_a_description_with_a_roster(tmp_path: Path, keys: Path) -> None:
    base = describe(tmp_path, keys)
    assert (base.roster.version, base.signed, base.members) == (0, None, ["a0", "a1", "a2"])
    joined = base.with_roster(SignedRoster.of(JOINED, operator(keys)))
    assert (joined.members, joined.described) == (["a0", "a1", "a2", "a3"], ["a0", "a1", "a2"])
    assert joined.data_of(3) is None
    assert joined.graph.neighbours(3) == [1]
    left = base.with_roster(SignedRoster.of(JOINED.without("a0"), operator(keys)))
    assert (left.members, left.left, left.id_of("a3")) == (["a1", "a2", "a3"], ["a0"], 3)
    assert (set(left.without_rows), left.counts("a0"), left.graph.neighbours(0)) == ({0}, False, [])
    assert left.members_graph.edges.tolist() == [[0, 1], [0, 2]]
    kept = base.with_roster(SignedRoster.of(JOINED.without("a0", keep_rows=True), operator(keys)))
    assert (kept.left, kept.counts("a0")) == (["a0"], True)
    with pytest.raises(InputError, match="a0 has left the fleet 'bay', by version 2"):
        left.check_member("a0")
    digests = {one.digest for one in (base, joined, left, kept)}
    assert len(digests) == 4
    assert len({len(digest) for digest in digests}) == 1
    assert base.rank_in(joined.digest) == joined.roster.rank
    assert "version 1 of the roster, and here is version 0" in base.differences(joined.digest)
    assert base.rank_in(joined.digest[:-1]) is None


def test_a_roster_that_does_not_fit(tmp_path: Path, keys: Path) -> None:
    base = describe(tmp_path, keys)
    with pytest.raises(GraphError, match="a3 cannot be reached from 'a2'"):
        base.with_roster(SignedRoster(BASE.joined("a3", "tls/127.0.0.1:7003", ["a0"]).without("a1").without("a0")))
    with pytest.raises(InputError, match="endpoint of 'a0'"):
        base.with_roster(SignedRoster(BASE.joined("a3", "tls/127.0.0.1:7000", ["a0"])))
    with pytest.raises(InputError, match="use `fleetgp join`"):
        base.with_roster(SignedRoster(Roster("bay", 1, BASE.hash, BASE.members[:2])))
    base.with_roster(SignedRoster(JOINED.without("a0").joined("a4", "tls/127.0.0.1:7000", ["a1"])))  # its place is free


def test_the_roster_beside_the_file_counts(tmp_path: Path, keys: Path) -> None:
    base = describe(tmp_path, keys)
    base.state.mkdir()
    (base.state / ROSTER).write_bytes(SignedRoster.of(JOINED, operator(keys)).encode())
    assert read_description(tmp_path / "fleet.toml").members == ["a0", "a1", "a2", "a3"]
    (base.state / ROSTER).write_bytes(SignedRoster.of(JOINED, operator(keys, "a1")).encode())
    with pytest.raises(InputError, match=r"roster.json: .*not by the operator.*: move it away"):
        read_description(tmp_path / "fleet.toml")


# ---- what an agent does with them ----------------------------------------------------------------------------------


class Agent:
    """What an agent's admission does."""

    def __init__(self, folder: Path, description: Description) -> None:
        self.log, self.sent, self.path = Log("a0", file=folder / "a0.log"), list[bytes](), folder / "a0" / ROSTER
        self.taken: list[Description] = []
        self.admission = Admission(description, self.path, self.log, self.sent.append, self.taken.append)

    def bring(self, signed: SignedRoster) -> dict[str, Any]:
        replies: list[dict[str, Any]] = []
        self.admission._look(signed.encode(), replies.append)
        return replies[0]

    def events(self) -> list[str]:
        return [line["event"] for line in self.log.recent()]


def test_a_newer_roster_is_kept_and_passed_on(tmp_path: Path, keys: Path) -> None:
    agent, signed = Agent(tmp_path, describe(tmp_path, keys)), SignedRoster.of(JOINED, operator(keys))
    assert agent.bring(signed) == {"answer": {"version": 1}}
    assert agent.path.read_bytes() == signed.encode()
    assert agent.sent == [signed.encode()]
    assert [description.members for description in agent.taken] == [["a0", "a1", "a2", "a3"]]
    assert agent.bring(signed) == {"answer": {"version": 1}}, "it has it already"
    assert (len(agent.sent), len(agent.taken)) == (1, 1)


def test_an_older_one_is_refused_once(tmp_path: Path, keys: Path) -> None:
    agent = Agent(tmp_path, describe(tmp_path, keys))
    agent.bring(SignedRoster.of(JOINED.without("a2"), operator(keys)))
    replayed = SignedRoster.of(JOINED, operator(keys))
    for _ in range(3):
        assert "newer than version 2, got version 1" in agent.bring(replayed)["error"]
    assert agent.events().count("roster refused") == 1
    assert len(agent.taken) == 1
    assert agent.admission._description.roster.version == 2


def test_of_two_with_one_version_all_agents_take_the_same(tmp_path: Path, keys: Path) -> None:
    one = SignedRoster.of(JOINED, operator(keys))
    other = SignedRoster.of(BASE.joined("a3", "tls/127.0.0.1:7777", ["a0"]), operator(keys))
    ends = []
    for number, order in enumerate([(one, other), (other, one)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        agent = Agent(folder, describe(folder, keys))
        for signed in order:
            agent.bring(signed)
        ends.append(agent.admission._description.roster.hash)
    assert ends[0] == ends[1] == min(one.roster.hash, other.roster.hash)


def test_what_is_not_the_operators_changes_nothing(tmp_path: Path, keys: Path) -> None:
    make_certificate(tmp_path / "keys", OPERATOR)
    agent = Agent(tmp_path, describe(tmp_path, keys))
    for signed, why in wrong(SignedRoster.of(JOINED, operator(keys)), keys, tmp_path / "keys")[:-1]:
        reply = agent.bring(signed)
        assert "error" in reply, why
    assert (agent.sent, agent.taken, agent.path.exists()) == ([], [], False)
    assert set(agent.events()) == {"roster refused"}


def test_without_certificates_rosters_are_not_signed(tmp_path: Path) -> None:
    members = tuple(replace(member, endpoint=member.endpoint.replace("tls", "tcp")) for member in BASE.members)
    agent = Agent(tmp_path, describe(tmp_path, None))
    roster = replace(BASE, members=members).joined("a3", "tcp/127.0.0.1:7003", ["a0"])
    assert agent.bring(SignedRoster(roster)) == {"answer": {"version": 1}}
    away = roster.joined("a4", "tcp/10.0.0.4:7004", ["a0"])
    assert "outside of this machine" in agent.bring(SignedRoster(away))["error"]
