"""fleet.toml: what is in it, and the line of what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.agent.description import MOST_STARTS, read_description
from fleetgp.agent.toml_lines import Lines, too_deep
from fleetgp.errors import InputError
from fleetgp.prediction import PredictionOptions
from fleetgp.training.constraints import ParameterConstraints

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


FOURTH = """
[[agent]]
name = "auv4"
endpoint = "tcp/127.0.0.1:7404"
data = "auv4.csv"
metrics = 9400
neighbours = ["auv3"]
"""


def read(folder: Path, text: str) -> object:
    (folder / "fleet.toml").write_text(text, encoding="utf-8")
    return read_description(folder / "fleet.toml")


def test_a_good_file(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(GOOD, encoding="utf-8")
    found = read_description(tmp_path / "fleet.toml")
    assert found.names == ("auv1", "auv2", "auv3")
    assert found.graph.edges.tolist() == [[0, 1], [1, 2]]  # an edge that one end lists is an edge
    assert (found.timeouts.round, found.timeouts.connect) == (5, 30.0)
    assert found.data_of(1) == tmp_path.resolve() / "auv2.csv"
    assert not found.secured
    assert found.prediction_options() == PredictionOptions()


def test_options_of_prediction(tmp_path: Path) -> None:
    part = '[prediction]\nmethod = "dec-nearest"\neta = "auto"\nn_nearest = 12\ntol = 1e-3\n'
    (tmp_path / "fleet.toml").write_text(GOOD.replace("[timeouts]", f"{part}[timeouts]"), encoding="utf-8")
    found = read_description(tmp_path / "fleet.toml")
    assert found.prediction_options() == PredictionOptions(eta="auto", n_nearest=12, tol=1e-3)
    (tmp_path / "fleet.toml").write_text(
        GOOD.replace("[timeouts]", "[prediction]\neta = 1\n[timeouts]"), encoding="utf-8"
    )
    assert read_description(tmp_path / "fleet.toml").prediction_options().eta == 1.0


def test_bounds_priors_and_fixed_values(tmp_path: Path) -> None:
    bounds = "bounds = { l_lon = [0.1, 5], signal = [0, inf] }\n"
    tables = bounds + "[training.priors]\nnoise = [0.1, 2]\n[training.fixed]\nl_lat = 3\n"
    (tmp_path / "fleet.toml").write_text(GOOD.replace("[timeouts]", f"{tables}[timeouts]"), encoding="utf-8")
    known = read_description(tmp_path / "fleet.toml").training_options(None).known
    names = ("l_lon", "l_lat", "sigma_f", "sigma_eps")
    assert known == ParameterConstraints.of(names, {"l_lon": (0.1, 5)}, {"noise": (0.1, 2)}, {"l_lat": 3})
    (tmp_path / "fleet.toml").write_text(GOOD, encoding="utf-8")
    assert read_description(tmp_path / "fleet.toml").training_options(None).known == ParameterConstraints.of(names)


def test_starts_and_names(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(GOOD, encoding="utf-8")
    found = read_description(tmp_path / "fleet.toml")
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
        (
            'target = "sst"',
            'target = ["t", "s"]',
            3,
            "target: expected one column, got 2: a running fleet has one target",
        ),
        ('method = "dec-apx-gp"', 'method = "apx-gp"', 6, "training.method must be one of dec-full-gp, dec-fact-gp"),
        ("  2.0, 0.5,", "  2.0,", 7, "training.theta0"),
        ("  2.0, 0.5,", "  2.0, -0.5,", 7, "training.theta0"),
        (
            "[timeouts]",
            "bounds = { l_lom = [1, 2] }\n[timeouts]",
            12,
            "training: unknown hyperparameter in bounds 'l_lom'",
        ),
        (
            "[timeouts]",
            "[training.priors]\nnoise = [1]\n[timeouts]",
            12,
            "training: priors: noise: expected two numbers",
        ),
        ("[timeouts]", "bounds.noise = [1, 2]\nfixed.noise = 3\n[timeouts]", 12, "is outside of its bounds, 1 to 2"),
        ("[timeouts]", "fixed = { noise = true }\n[timeouts]", 12, "training.fixed.noise"),
        ("round = 5", 'round = "5"', 13, "timeouts.round"),
        ("round = 5", "round = -5", 13, "timeouts.round"),
        ("round = 5", "rounds = 5", 13, "timeouts.rounds is unknown"),
        ("[timeouts]", '[prediction]\neta = "some"\n[timeouts]', 13, "or \"auto\", got 'some'"),
        ("[timeouts]", "[prediction]\neta = 1.5\n[timeouts]", 13, "prediction.eta must be a number"),
        (
            "[timeouts]",
            "[prediction]\nn_neighbours = 0\n[timeouts]",
            13,
            "prediction.n_neighbours must be a whole number",
        ),
        ('  "auv3",', '  "auv7",', 27, "neighbour 'auv7' is no agent of this fleet"),
        ('  "auv3",', '  "auv2",', 27, "cannot be its own neighbour"),
        ('  "auv3",\n', "", 29, "auv3 cannot be reached from 'auv1'"),
        ('name = "auv3"', 'name = "auv1"', 31, "two agents called 'auv1'"),
        ('name = "auv3"', 'name = "operator"', 31, "cannot be called 'operator'"),
        ('name = "auv3"', 'name = "a/b"', 31, "letters, digits"),
        ('name = "auv3"', 'name = ".."', 31, "with a letter, digit or underscore first, got '..'"),
        ('name = "auv3"', 'name = "."', 31, "with a letter, digit or underscore first"),
        ('name = "auv3"', 'name = "-auv3"', 31, "with a letter, digit or underscore first"),
        ('name = "auv3"', 'name = " auv3"', 31, "inner spaces"),
        ('name = "auv3"', 'name = "auv3 "', 31, "inner spaces"),
        ('name = "auv3"', 'name = "auv3\\n"', 31, "inner spaces"),
        ('name = "auv3"', f'name = "{"ü" * 40}"', 31, "is longer than 64 bytes"),
        ('name = "bay"', 'name = ".."', 1, "with a letter, digit or underscore first"),
        ('name = "bay"', f'name = "bay"\nseed = 0x{"f" * 9999}', 2, "got an int too long to print"),
        ('data = "auv3.csv"', 'data = "a\\u0000b"', 33, "agent.data must be a path without NUL"),
        ('data = "auv3.csv"', 'data = "auv3.csv"\nmetrics = 9400', 40, "'auv4' has the metrics port of 'auv3'"),
        ("tcp/127.0.0.1:7403", "tcp/127.0.0.1:7402", 32, "has the endpoint of 'auv2'"),
        (
            "tcp/127.0.0.1:7403",
            "127.0.0.1:7403",
            32,
            "expected an endpoint like 'tcp/127.0.0.1:7447', got '127.0.0.1:7403'",
        ),
        ("tcp/127.0.0.1:7403", "tcp/127.0.0.1:99999", 32, "an endpoint like"),
        ("tcp/127.0.0.1:7403", "tls/..:7403", 32, "an endpoint like"),
        ("tcp/127.0.0.1:7403", "tls/bücher:7403", 32, "an endpoint like"),
        ("tcp/127.0.0.1:7403", "tls/[::::]:7403", 32, "an endpoint like"),
        ("tcp/127.0.0.1:7403", "tcp/127.0.0.1:7403\\n", 32, "an endpoint like"),
        ("tcp/127.0.0.1:7403", "tcp/10.0.0.3:7403", 32, "need certificates"),
        ("tcp/127.0.0.1:7403", "tls/10.0.0.3:7403", 32, "needs certificates: add a table"),
        ("round = 5", 'round = 5\n[tls]\nfolder = "keys"', 19, "must begin with tls/ or quic/"),
        ("round = 5", "round = 5\n[tls]", 18, "must begin with tls/"),
        (
            "round = 5",
            'round = 5\n[prediction]\nconsensus = "mean"',
            15,
            "unknown consensus 'mean': choose",
        ),
        ('endpoint = "tcp/127.0.0.1:7403"', "", 30, "agent.endpoint is missing"),
        ('target = "sst"', 'traget = "sst"', 3, "traget is unknown: is it misspelt? (and 1 more)"),
        ('data = "auv3.csv"', 'data = "auv3.csv"\nmetrics = 0', 34, "agent.metrics"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError) as error:
        read(tmp_path, GOOD.replace(old, new, 1) + (FOURTH if "auv4" in said else ""))
    assert f"fleet.toml, line {line}: " in str(error.value)
    assert said in str(error.value)


def test_broken_toml_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 3"):
        read(tmp_path, 'name = "bay"\ninputs = ["a"]\ntarget = \n')
    with pytest.raises(InputError, match="no such file"):
        read_description(tmp_path / "none.toml")


def test_the_digest_is_of_what_agents_must_have_in_common(tmp_path: Path) -> None:
    def digest(text: str) -> str:
        (tmp_path / "fleet.toml").write_text(text, encoding="utf-8")
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


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("round = 5", "round = 6", "[timeouts] round (5.0 here)"),
        ('"dec-apx-gp"', '"dec-c-gp"', "[training] method ('dec-apx-gp' here)"),
        ('target = "sst"', 'target = "salinity"', "target ('sst' here)"),
        ('name = "bay"', 'name = "bay"\nprivate = "rows"', "private (not set here)"),
        ("tcp/127.0.0.1:7403", "tcp/127.0.0.1:7404", "agents"),
        ('neighbours = ["auv2"]', 'neighbours = ["auv2", "auv3"]', "edges"),
    ],
)
def test_of_two_descriptions_the_settings_that_differ_are_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text(GOOD, encoding="utf-8")
    other.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    description = read_description(one)
    told = description.differences(read_description(other).digest)
    assert told == f"it holds another fleet description: different {named}"
    assert len(description.digest) <= 512, "it fits into an introduction"
    assert "another version of FleetGP" in description.differences("ab" * 32 + "c")


def test_the_kind_of_consensus_is_the_fleets(tmp_path: Path) -> None:
    """It is common to all agents, and an option of every prediction; the tree, if nothing is said."""
    file, digests = tmp_path / "fleet.toml", set()
    for said, expected in (("", "tree"), ('\n[prediction]\nconsensus = "average"\nrounds = 7\n', "average")):
        file.write_text(GOOD.replace("\n[[agent]]", said + "\n[[agent]]", 1), encoding="utf-8")
        description = read_description(file)
        options = description.prediction_options()
        assert (options.consensus, options.rounds) == (expected, 7 if said else 20_000)
        digests.add(description.digest)
    assert len(digests) == 2


def test_tls_files_are_looked_for_where_they_are_said_to_be(tmp_path: Path) -> None:
    from fleetgp.agent.certificates import make_certificate

    secured = GOOD.replace("tcp/", "tls/")
    made = make_certificate(tmp_path / "keys", "auv1")
    (tmp_path / "fleet.toml").write_text(secured + '[tls]\nfolder = "keys"\n', encoding="utf-8")
    found = read_description(tmp_path / "fleet.toml")
    credentials = found.credentials("auv1")
    assert credentials is not None
    assert credentials.key.samefile(made.key)
    with pytest.raises(InputError, match=r"auv2\.crt: there is no such file"):
        found.credentials("auv2")
    files = 'authority = "keys/authority.crt"\ncertificate = "keys/{name}.crt"\nkey = "keys/{name}.key"\n'
    (tmp_path / "fleet.toml").write_text(secured + "[tls]\n" + files, encoding="utf-8")
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


# ---- files that somebody made to hurt ------------------------------------------------------------------------------


def agents(count: int) -> str:
    one = '[[agent]]\nname = "n{0}"\nendpoint = "tcp/127.0.0.1:{1}"\ndata = "d"\nneighbours = ["auv1"]\nmetrics = {1}\n'
    return "".join(one.format(k, 10_000 + k % 50_000) for k in range(count))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + 900 * "[" + 900 * "]" + "\n" + GOOD, "line 1: expected values and keys at most 20 deep"),
        (GOOD + "a = " + 900 * "{a=" + "1" + 900 * "}" + "\n", "line 34: expected values and keys at most 20 deep"),
        (50_000 * "a." + "a = 1\n" + GOOD, "line 1: expected values and keys at most 20 deep"),
        ("[" + 50_000 * "a." + "a]\n" + GOOD, "line 1: expected values and keys at most 20 deep"),
        ("seed = " + 5000 * "9" + "\n" + GOOD, "got one of thousands of digits"),
        ("".join(f"a.b.c{k} = 1\n" for k in range(50_000)) + GOOD, "expected at most 512 KiB"),
        ("".join(f"a.b{k} = 1\n" for k in range(20_000)) + GOOD, "expected at most 20,000 keys, got 20,029"),
        (GOOD + agents(20_000), "expected at most 512 KiB"),
        (GOOD + agents(2000), "expected at most 1000 agents, got 2003"),
        ('name = "' + 300_000 * "x" + '"\n', "name should have at most 64 characters, got 'xxx"),
        ('a = """\n[' + 300_000 * " " + '\n"""\n' + GOOD, "line 1: a is unknown"),
        ('a = "' + 100_000 * '\\"' + "\n", "expected TOML: "),
        ("a = " + 100_000 * "'", "expected TOML: "),
        (GOOD.replace('["auv2"]', f'["{200_000 * "q"}"]'), "line 19: neighbour 'qqq"),
        ('name = "b\udc80"\n', "expected TOML, which is UTF-8"),
    ],
    ids=range(15),
)
def test_a_hostile_file_is_one_short_error(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "fleet.toml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError) as error:
        read_description(tmp_path / "fleet.toml")
    assert said in str(error.value)
    assert len(str(error.value)) < 500 + len(str(tmp_path))


@pytest.mark.timeout(60)
def test_many_agents_are_read(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(GOOD + agents(900), encoding="utf-8")
    found = read_description(tmp_path / "fleet.toml")
    assert len(found.names) == 903
    with pytest.raises(InputError, match="auv1, auv2, auv3, n0, n1, n2, n3, n4, n5, n6, n7, n8 and 891 more"):
        found.id_of("nobody")


@pytest.mark.parametrize("name", ["jörg", "Boot 7", "船", "_a", "7", "a.b-c_d", "ü" * 32])
def test_names_may_have_letters_of_any_script_and_inner_spaces(tmp_path: Path, name: str) -> None:
    from fleetgp.agent.certificates import make_certificate

    (tmp_path / "fleet.toml").write_text(GOOD.replace('"auv3"', f'"{name}"'), encoding="utf-8")
    assert read_description(tmp_path / "fleet.toml").names == ("auv1", "auv2", name)
    assert make_certificate(tmp_path / "keys", name).key.is_file()


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "-a", " a", "a ", "a\n", "a$b", "a*", "authority", "ü" * 33])
def test_certificates_go_by_the_same_names(tmp_path: Path, name: str) -> None:
    from fleetgp.agent.certificates import make_certificate

    with pytest.raises(InputError, match="an agent cannot be called"):
        make_certificate(tmp_path / "keys", name)
    assert not (tmp_path / "keys").exists()


PIECES = [*GOOD.splitlines(keepends=True), *"[]{}='.#\n", '"', '"""', "\\", "0x", "1e999", "nan", "inf", "true", "-1"]
PIECES += ["[[agent]]\n", "[tls]\n", "[training]\n", 'theta0 = [""]\n', "1979-05-27\n", "\\u0000", "🐋"]


@given(st.lists(st.tuples(st.integers(0, len(GOOD)), st.integers(0, 30), st.sampled_from(PIECES)), max_size=4))
@settings(max_examples=300, deadline=None)
def test_whatever_is_changed_in_a_file_gives_a_description_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int, str]]
) -> None:
    text = GOOD
    for place, length, piece in changes:
        text = text[:place] + piece + text[place + length :]
    file = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    file.write_text(text, encoding="utf-8")
    try:
        found = read_description(file)
    except InputError:
        return
    assert found.digest == read_description(file).digest
    assert found.training_options(found.starts()).rounds > 0


@given(st.text(st.sampled_from("[]{}.='\"#\\\n, a1"), max_size=60))
@settings(max_examples=200, deadline=None)
def test_depth_is_that_of_the_parser(text: str) -> None:
    """Whatever is well-formed, and not deep, passes."""
    import tomllib

    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert too_deep(text) == 0


def test_more_starts_than_agents_tell_each_other_are_refused(tmp_path: Path) -> None:
    rows = ", ".join("[2.0, 0.5, 1.0, 1.0]" for _ in range(MOST_STARTS + 1))
    many = GOOD.replace("theta0 = [\n  2.0, 0.5,\n  1.0, 1.0,\n]", f"theta0 = [{rows}]")
    with pytest.raises(InputError, match=f"line 7: expected at most {MOST_STARTS} starts, got {MOST_STARTS + 1}"):
        read(tmp_path, many)
