"""Who is believed: neighbours with their own certificates of the fleet's authority, and nobody else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fleetgp.agent.certificates import Credentials, make_certificate
from fleetgp.agent.description import read_description
from fleetgp.cli.app import app
from fleetgp.errors import InputError, NetworkError
from fleetgp.graph import Graph
from fleetgp.network.zenoh.links import Links
from fleetgp.network.zenoh.network import ZenohNetwork
from fleetgp.network.zenoh.session import Security
from fleetgp.operator.client import AgentClient
from fleetgp.operator.launch import fleet_text, free_ports
from fleetgp.page.events import Contact
from fleetgp.page.watch import AgentProbe

NAMES = ("Ada", "Bo")


def secured(folder: Path, agent: int, *, certificate: str | None = None, authority: Path | None = None) -> Security:
    name = certificate or NAMES[agent]
    own = Credentials.of(folder, name)
    return Security(authority or own.authority, own.certificate, own.key, NAMES)


@contextmanager
def opened(*edge: int, **options: Any) -> Iterator[Links]:
    """The links of one end. Nobody waits until they are closed: after a refusal over QUIC it takes ten seconds."""
    links = Links([edge], run=5, **options)  # type: ignore[list-item]
    try:
        yield links
    finally:
        threading.Thread(target=links.close).start()


def two_ends(zero: Security | None, one: Security | None, *, scheme: str = "tls", patience: float = 1.5) -> list[Any]:
    """What becomes of two neighbours with these credentials: a sum, or the error of each.

    patience: seconds. Whoever must be believed gets many, so that a busy machine is not taken for a refusal.
    """
    places, done = free_ports(2), threading.Barrier(2)

    def work(agent: int) -> Any:
        security = (zero, one)[agent]
        kind = "tcp" if security is None else scheme
        try:
            with opened(
                agent,
                1 - agent,
                listen=f"{kind}/127.0.0.1:{places[agent]}",
                endpoints={1 - agent: f"{kind}/127.0.0.1:{places[1 - agent]}"},
                security=security,
            ) as links:
                try:
                    links.wait(patience)
                    network = ZenohNetwork(links, Graph.path(2), [agent], timeout=patience)
                    return float(network.neighbour_sum(np.full(1, 1.0 + agent), "statistics")[0])
                finally:
                    done.wait(2.0 * patience + 60.0)  # who leaves first may take its last frame along
        except NetworkError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, range(2)))


@pytest.fixture
def fleet_keys(tmp_path: Path) -> Path:
    for name in NAMES:
        make_certificate(tmp_path / "keys", name)
    return tmp_path / "keys"


@pytest.mark.parametrize("kind", ["tls", "quic"])
def test_neighbours_with_their_certificates_are_believed(fleet_keys: Path, kind: str) -> None:
    assert two_ends(secured(fleet_keys, 0), secured(fleet_keys, 1), scheme=kind, patience=60.0) == [2.0, 1.0]


def test_over_quic_too_a_name_must_be_ones_own(fleet_keys: Path) -> None:
    make_certificate(fleet_keys, "Eve")
    found = two_ends(secured(fleet_keys, 0), secured(fleet_keys, 1, certificate="Eve"), scheme="quic")
    assert "agent 1 did not answer" in found[0] or "nothing came from agent 1" in found[0]


def test_no_certificate_is_refused(fleet_keys: Path) -> None:
    found = two_ends(secured(fleet_keys, 0), None)
    assert "agent 1 did not answer" in found[0]


def test_an_expired_certificate_is_refused(fleet_keys: Path) -> None:
    make_certificate(fleet_keys, "Bo", days=-1)
    found = two_ends(secured(fleet_keys, 0), secured(fleet_keys, 1))
    assert "agent 1 did not answer" in found[0]


def test_a_foreign_authority_is_refused(fleet_keys: Path, tmp_path: Path) -> None:
    make_certificate(tmp_path / "foreign", "Bo")
    stranger = secured(tmp_path / "foreign", 1, authority=fleet_keys / "authority.crt")
    found = two_ends(secured(fleet_keys, 0), stranger)
    assert "agent 1 did not answer" in found[0]


def test_a_valid_certificate_under_another_name_is_refused(fleet_keys: Path) -> None:
    make_certificate(fleet_keys, "Eve")
    found = two_ends(secured(fleet_keys, 0), secured(fleet_keys, 1, certificate="Eve"))
    assert "agent 1 did not answer" in found[0] or "nothing came from agent 1" in found[0]
    # The name alone makes the difference.
    agreed = [replace(secured(fleet_keys, 0), names=("Ada", "Eve")), secured(fleet_keys, 1, certificate="Eve")]
    assert two_ends(*agreed, patience=60.0) == [2.0, 1.0]


def test_outside_of_this_machine_certificates_are_a_must() -> None:
    with pytest.raises(InputError, match="need certificates"):
        Links([(0, 1)], listen="tcp/0.0.0.0:7447", endpoints={1: "tcp/10.0.0.2:7447"})


def test_keys_are_their_owners_alone_and_certificates_say_who(fleet_keys: Path) -> None:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    certificate = x509.load_pem_x509_certificate((fleet_keys / "Ada.crt").read_bytes())
    authority = x509.load_pem_x509_certificate((fleet_keys / "authority.crt").read_bytes())
    assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "Ada"
    certificate.verify_directly_issued_by(authority)
    for key in fleet_keys.glob("*.key"):
        assert key.stat().st_mode & 0o077 == 0
    before = (fleet_keys / "authority.crt").read_bytes()
    make_certificate(fleet_keys, "Cy")
    assert (fleet_keys / "authority.crt").read_bytes() == before
    with pytest.raises(InputError, match="cannot be called"):
        make_certificate(fleet_keys, "a/b")
    (fleet_keys / "authority.key").unlink()  # where the operator is, it is not
    with pytest.raises(InputError, match="authority's key is not here"):
        make_certificate(fleet_keys, "Di")
    assert (fleet_keys / "authority.crt").read_bytes() == before


def test_certificates_from_the_command_line(tmp_path: Path) -> None:
    arguments = [
        "certs",
        str(tmp_path / "k"),
        "--agents",
        "auv1",
        "auv2",
        "--hosts",
        "10.0.0.1",
        "boat.example",
        "--json",
    ]
    found = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    assert set(json.loads(found.stdout)["certificates"]) == {"auv1", "auv2", "operator"}
    assert {p.name for p in (tmp_path / "k").iterdir()} == {
        f"{name}.{end}" for name in ("authority", "auv1", "auv2", "operator") for end in ("crt", "key")
    }
    refused = CliRunner().invoke(app, ["certs", str(tmp_path / "k"), "--agents", "authority"], catch_exceptions=False)
    assert refused.exit_code == 2


@pytest.mark.parametrize(
    ("theirs", "expected"), [(None, "certificate is not accepted here"), ("agent", "does not accept the certificate")]
)
def test_an_operator_of_another_authority_learns_why_no_agent_answers(
    fleet_keys: Path, tmp_path: Path, theirs: str | None, expected: str
) -> None:
    """The agent runs. The operator's files are of a new authority, or its certificate alone is."""
    new = tmp_path / "new"
    make_certificate(new, "operator")
    if theirs == "agent":
        (new / "authority.crt").write_bytes((fleet_keys / "authority.crt").read_bytes())
    here, there = free_ports(2)
    (tmp_path / "fleet.toml").write_text(
        fleet_text(
            "two",
            NAMES,
            [f"tls/127.0.0.1:{here}", f"tls/127.0.0.1:{there}"],
            ["a.csv", "b.csv"],
            [(0, 1)],
        )
        + '\n[tls]\nfolder = "new"\n',
        encoding="utf-8",
    )
    ends: dict[str, Any] = {"listen": f"tls/127.0.0.1:{here}", "endpoints": {1: f"tls/127.0.0.1:{there}"}}
    file = str(tmp_path / "fleet.toml")
    with opened(0, 1, security=secured(fleet_keys, 0), **ends):
        with pytest.raises(NetworkError) as raised:
            AgentClient(read_description(tmp_path / "fleet.toml"), "Ada")
        contact = AgentProbe(read_description(tmp_path / "fleet.toml"), "Ada").probe(Contact(), 0)
        told = {verb: CliRunner().invoke(app, [verb, file], env={"COLUMNS": "500"}) for verb in ("status", "down")}
    assert f"Ada cannot be reached at tls/127.0.0.1:{here}: it runs, but " in str(raised.value)
    assert expected in str(raised.value)
    assert expected in contact.why
    for result in told.values():
        assert result.exit_code == 1
        assert expected in str(result.exception or "") + result.output + result.stderr
        assert "are they running?" not in result.output + result.stderr


@pytest.mark.parametrize("scheme", ["tls", "quic"])
def test_an_operator_whose_certificate_has_expired_learns_it(fleet_keys: Path, tmp_path: Path, scheme: str) -> None:
    make_certificate(fleet_keys, "operator", days=-1)
    here, there = free_ports(2)
    ends = [f"{scheme}/127.0.0.1:{here}", f"{scheme}/127.0.0.1:{there}"]
    text = fleet_text("two", NAMES, ends, ["a.csv", "b.csv"], [(0, 1)]) + '\n[tls]\nfolder = "keys"\n'
    (tmp_path / "fleet.toml").write_text(text, encoding="utf-8")
    with (
        opened(0, 1, security=secured(fleet_keys, 0), listen=ends[0], endpoints={1: ends[1]}),
        pytest.raises(NetworkError, match=r"operator\.crt has expired: make another"),
    ):
        AgentClient(read_description(tmp_path / "fleet.toml"), "Ada")


def test_a_quic_endpoint_that_does_not_answer_may_not_believe_the_operator(fleet_keys: Path, tmp_path: Path) -> None:
    make_certificate(fleet_keys, "operator")
    ends = [f"quic/127.0.0.1:{port}" for port in free_ports(2)]
    text = fleet_text("two", NAMES, ends, ["a.csv", "b.csv"], [(0, 1)]) + '\n[tls]\nfolder = "keys"\n'
    (tmp_path / "fleet.toml").write_text(text, encoding="utf-8")
    with pytest.raises(NetworkError, match=r"is it running, with a certificate of the authority in .*authority\.crt"):
        AgentClient(read_description(tmp_path / "fleet.toml"), "Ada", reach=0.5)
