"""fleet.toml: what is in it, and the line of what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fleetgp.agent.description import read_description
from fleetgp.agent.toml_lines import Lines
from fleetgp.errors import InputError

GOOD = """\
name = "bay"
inputs = ["lon", "lat"]
target = "sst"

[training]
method = "dec-apx-gp"
theta0 = [
  2.0, 0.5,
  1.0, 1.0,
]

[timeouts]
round = 5

[[agent]]
name = "auv1"
endpoint = "tcp/127.0.0.1:7401"
data = "auv1.csv"
neighbours = ["auv2"]

[[agent]]
name = "auv2"
endpoint = "tcp/127.0.0.1:7402"
data = "auv2.csv"
neighbours = [
  "auv1",
  "auv3",
]

[[agent]]
name = "auv3"
endpoint = "tcp/127.0.0.1:7403"
data = "auv3.csv"
"""


def read(folder: Path, text: str) -> object:
    (folder / "fleet.toml").write_text(text)
    return read_description(folder / "fleet.toml")


def test_a_good_file(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(GOOD)
    found = read_description(tmp_path / "fleet.toml")
    assert found.names == ("auv1", "auv2", "auv3")
    assert found.graph.edges.tolist() == [[0, 1], [1, 2]]  # an edge that one end lists is an edge
    assert (found.timeouts.round, found.timeouts.connect) == (5, 30.0)
    assert found.data_of(1) == tmp_path.resolve() / "auv2.csv"
    assert not found.secured
    starts = found.starts()
    assert starts is not None
    np.testing.assert_allclose(np.exp(starts), [[2.0, 0.5, 1.0, 1.0]])
    assert found.training_options(None).normalize
    with pytest.raises(InputError, match="no agent 'auv9' in this fleet: choose one of auv1, auv2, auv3"):
        found.id_of("auv9")


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('name = "bay"', "", 1, "name is missing"),
        ('name = "bay"', 'name = "bay"\nnmae = 3', 2, "nmae is unknown: is it misspelt"),
        ('target = "sst"', 'target = "lat"', 2, "inputs and target must be different columns"),
        ('method = "dec-apx-gp"', 'method = "apx-gp"', 6, "training.method must be one of dec-c-gp, dec-apx-gp"),
        ("  2.0, 0.5,", "  2.0,", 7, "training.theta0"),
        ("  2.0, 0.5,", "  2.0, -0.5,", 7, "training.theta0"),
        ("round = 5", 'round = "5"', 13, "timeouts.round"),
        ("round = 5", "round = -5", 13, "timeouts.round"),
        ("round = 5", "rounds = 5", 13, "timeouts.rounds is unknown"),
        ('  "auv3",', '  "auv7",', 27, "neighbour 'auv7' is no agent of this fleet"),
        ('  "auv3",', '  "auv2",', 27, "cannot be its own neighbour"),
        ('  "auv3",\n', "", 29, "auv3 cannot be reached from 'auv1'"),
        ('name = "auv3"', 'name = "auv1"', 31, "two agents called 'auv1'"),
        ('name = "auv3"', 'name = "operator"', 31, "cannot be called 'operator'"),
        ('name = "auv3"', 'name = "a/b"', 31, "letters, digits"),
        ("tcp/127.0.0.1:7403", "tcp/127.0.0.1:7402", 32, "has the endpoint of 'auv2'"),
        ("tcp/127.0.0.1:7403", "127.0.0.1:7403", 32, "an endpoint like 'tcp/127.0.0.1:7447' was expected"),
        ("tcp/127.0.0.1:7403", "tcp/127.0.0.1:99999", 32, "an endpoint like"),
        ("tcp/127.0.0.1:7403", "tcp/10.0.0.3:7403", 32, "need certificates"),
        ("tcp/127.0.0.1:7403", "tls/10.0.0.3:7403", 32, "needs certificates: add a table"),
        ("round = 5", 'round = 5\n[tls]\nfolder = "keys"', 19, "must begin with tls/ or quic/"),
        ("round = 5", "round = 5\n[tls]", 18, "must begin with tls/"),
        ('data = "auv3.csv"', "", 30, "agent.data is missing"),
        ('target = "sst"', 'traget = "sst"', 3, "traget is unknown: is it misspelt? (and 1 more)"),
        ('data = "auv3.csv"', 'data = "auv3.csv"\nmetrics = 0', 34, "agent.metrics"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError) as error:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert f"fleet.toml, line {line}: " in str(error.value)
    assert said in str(error.value)


def test_broken_toml_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 3"):
        read(tmp_path, 'name = "bay"\ninputs = ["a"]\ntarget = \n')
    with pytest.raises(InputError, match="no such file"):
        read_description(tmp_path / "none.toml")


def test_the_digest_is_of_what_agents_must_have_in_common(tmp_path: Path) -> None:
    def digest(text: str) -> str:
        (tmp_path / "fleet.toml").write_text(text)
        return read_description(tmp_path / "fleet.toml").digest

    same = digest(GOOD)
    # Files, folders, ports and comments of one's own do not matter, nor at which end a link is listed.
    assert digest(GOOD.replace('"auv1.csv"', '"elsewhere/data.npz"')) == same
    assert digest("# a comment\n" + GOOD.replace('name = "bay"', 'name = "bay"\nstate = "var"')) == same
    assert digest(GOOD + 'neighbours = ["auv2"]\nmetrics = 9400\n') == same
    for old, new in (
        ("round = 5", "round = 6"),
        ('"dec-apx-gp"', '"dec-c-gp"'),
        ('target = "sst"', 'target = "salinity"'),
        ("tcp/127.0.0.1:7403", "tcp/127.0.0.1:7404"),
        ('name = "bay"', 'name = "gulf"'),
        ("  2.0, 0.5,", "  2.0, 0.4,"),
        ('neighbours = ["auv2"]', 'neighbours = ["auv2", "auv3"]'),
    ):
        assert digest(GOOD.replace(old, new, 1)) != same


def test_tls_files_are_looked_for_where_they_are_said_to_be(tmp_path: Path) -> None:
    from fleetgp.agent.certificates import make_certificate

    secured = GOOD.replace("tcp/", "tls/")
    made = make_certificate(tmp_path / "keys", "auv1")
    (tmp_path / "fleet.toml").write_text(secured + '[tls]\nfolder = "keys"\n')
    found = read_description(tmp_path / "fleet.toml")
    credentials = found.credentials("auv1")
    assert credentials is not None
    assert credentials.key.samefile(made.key)
    with pytest.raises(InputError, match=r"auv2\.crt: there is no such file"):
        found.credentials("auv2")
    files = 'authority = "keys/authority.crt"\ncertificate = "keys/{name}.crt"\nkey = "keys/{name}.key"\n'
    (tmp_path / "fleet.toml").write_text(secured + "[tls]\n" + files)
    assert read_description(tmp_path / "fleet.toml").credentials("auv1") == credentials
    with pytest.raises(InputError, match=r"line 34: .*either folder, or all of"):
        read(tmp_path, secured + '[tls]\nfolder = "keys"\n' + files)


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ('a = """\nx = 1\n"""\nb = 2\n', ("b",), 4),
        ("a = [ # ]\n  1,\n]\nb = 2\n", ("b",), 4),
        ("a = '\\'\nb = 2\n", ("b",), 2),
        ("[x.y]\nb = 2\n", ("x", "y", "b"), 2),
        ("x.y.b = 2\n", ("x", "y", "b"), 1),
        ("[[t]]\n[t.sub]\nb = 1\n[[t]]\n[t.sub]\nb = 2\n", ("t", 1, "sub", "b"), 6),
        ('"quoted key" = 1\n[other]\n', ("quoted key",), 1),
        ("a = 1\n", ("nothing", "here"), 1),
    ],
)
def test_lines_of_toml(text: str, path: tuple[str | int, ...], line: int) -> None:
    assert Lines(text).of(path) == line
