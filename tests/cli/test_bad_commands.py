"""Commands that are mistaken: one line that says what was expected and what came, exit code 2, and nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import run, wrong

FIT = "fit t.csv --inputs lon lat --target sst --agent-column boat --out new"
GOOD = """\
name = "bay"
inputs = ["lon", "lat"]
target = "sst"

[[agent]]
name = "Boot 7"
endpoint = "tcp/127.0.0.1:7401"
data = "t.csv"
"""
TABLE = [
    (f"{FIT} --graph ring", "unknown graph 'ring': choose one of path, cycle, star, grid, complete, geometric, places"),
    (f"{FIT} --training sgd", "unknown training method 'sgd': choose one of dec-full-gp, dec-fact-gp"),
    (f"{FIT} --kernel rbf", "kernel: unknown kernel 'rbf': choose one of se, matern12"),
    (f"{FIT} --bound noise", "--bound: expected name=lowest:highest, and there is no ="),
    (f"{FIT} --fix noise=O.1", "--fix: expected a number, got 'O.1'"),
    (f"{FIT} --prior xx=1:2", "--prior: unknown name 'xx': choose one of l_lon, l_lat, sigma_f, sigma_eps, length"),
    (f"{FIT} --box 1 2 3", "--box: expected four numbers (west south east north), got 3"),
    (
        f"{FIT} --n-agents 2",
        "give either --agent-column (which names the agents) or --n-agents (how many to split over)",
    ),
    (f"{FIT} --rounds -1", "rounds must be a whole number of at least 1, got -1"),
    (f"{FIT} --missing skip", "unknown --missing 'skip': choose one of refuse, drop"),
    (f"{FIT} --fill abc", "--fill: expected numbers, or none, got abc"),
    (f"{FIT} --sep ab", "sep (--sep) must be one character, or tab, got 'ab'"),
    (f"{FIT} --mean cubic", "unknown --mean 'cubic': choose one of zero, constant, linear"),
    (f"{FIT} --coordinates miles", "unknown --coordinates 'miles': choose one of as-given, scaled, kilometres, sphere"),
    (f"{FIT} --seed -1", "seed must be a whole number of at least 0, got -1"),
    (f"{FIT} --calibrate all", "unknown --calibrate 'all': choose one of rows, blocks, both"),
    (f"{FIT} --noise boats", "unknown --noise 'boats': choose one of agents"),
    (f"{FIT} --workers 2", "--workers is for --cluster: give that as well, or leave it out"),
    (
        FIT.replace("new", "m"),
        "m: the folder exists: choose another name, or overwrite it (overwrite=True, on the",
    ),
    (FIT.replace("new", "/proc/x"), "/proc/x: it cannot be written: No such file or directory: choose another place"),
    (FIT.replace("t.csv", "no.csv"), "no.csv: there is no such file"),
    (FIT.replace("t.csv", "tabs.csv"), "separate the columns by commas, or say how they are (--sep 'tab')"),
    (
        FIT.replace("t.csv", "latin.csv"),
        "it is not written in utf-8: save it as UTF-8, or give its encoding, for example",
    ),
    (FIT.replace("sst", "salt"), "t.csv: there is no column 'salt'; it has lon, lat, sst, boat"),
    (
        FIT.replace("sst", "boat").replace("--agent-column boat ", ""),
        "column 'boat' must hold numbers: expected a number, got",
    ),
    (
        "predict nowhere p.csv --out a.csv",
        "nowhere: there is no model.json: expected a folder written by `fleetgp fit`",
    ),
    ("predict m no.csv --out a.csv", "no.csv: there is no such file"),
    ("predict m p.csv --out a.csv --method kriging", "unknown prediction method 'kriging': choose one of"),
    ("predict m p.csv --out a.csv --agent Zoe", "unknown agent 'Zoe': choose one of Ada, Bo"),
    ("predict m p.csv --out a.csv --eta 2", "eta must be a number of at least 0 and at most 1, got 2"),
    ("predict m p.csv --out a.csv --method full-gp --rounds 3", "full-gp has no option --rounds: expected one of"),
    ("predict m p.csv --out /proc/a.csv", "/proc/a.csv: it cannot be written: No such file or directory: choose"),
    ("predict m p.csv --out a.xyz", "a.xyz: expected a name that ends in .csv, .parquet, .npz"),
    (
        "map m --grid 100000x100000 --out m.nc",
        "--grid 100000x100000: 10,000,000,000 points are too many: give",
    ),
    ("map m --grid 2 --out m.nc", "--grid must be like 200x100, two points or more along each input, got '2'"),
    ("map m --grid 5x5 --within -1 --out m.nc", "--within must be a number of length-scales above 0, or inf, got -1"),
    (
        "map m --grid 5x5 --box 1 2 3 --out m.nc",
        "--box: expected four numbers (west south east north), got 3: 1 2 3",
    ),
    ("map m --grid 5x5 --out /proc/m.nc", "/proc/m.nc: it cannot be written: No such file or directory: choose"),
    ("calibrate m --method kriging", "unknown prediction method 'kriging': choose one of"),
    ("calibrate m --holdout all", "unknown holdout 'all': choose one of rows, blocks, both"),
    ("calibrate m --level 2", "level must lie between 0 and 1, got 2"),
    ("calibrate nowhere", "nowhere: there is no model.json: expected a folder written by"),
    (
        "download --box 1 2 3 --date 2021-01-03 --out s.nc",
        "--box: expected four numbers (west south east north), got 3",
    ),
    ("download --box 1 2 3 4 --date today --out s.nc", "date must be like 2021-01-31, got 'today'"),
    ("download --box 4 2 3 4 --date 2021-01-03 --out s.nc", "box must be west < east and south < north, got"),
    ("reproduce everything", "unknown experiment 'everything': choose one of training, prediction, communication"),
    ("up no.toml", "no.toml: there is no such file"),
    ("status no.toml", "no.toml: there is no such file"),
    ("down no.toml", "no.toml: there is no such file"),
    ("certs no.toml", "no.toml: there is no such file"),
    ("ask no.toml --agent Ada p.csv --out a.csv", "no.toml: there is no such file"),
    ("observe no.toml --agent Ada p.csv", "no.toml: there is no such file"),
    ("retrain no.toml --agent Ada", "no.toml: there is no such file"),
    ("map m --at depth=5 --out m.nc", "unknown input in at 'depth': choose one of lon, lat"),
    ("map m --at lon --out m.nc", "--at: expected a name and a value, like depth=5, got 'lon'"),
    ("map m --at lon=-71 --out m.nc", "a map: expected two inputs without a value, got 1 (lat)"),
    ("map m --at lon=abc --out m.nc", "at: expected a number for lon, which is no time, got 'abc'"),
    ("map m --mask no.nc --out m.nc", "no.nc: there is no such file"),
    ("map m --mask p.csv --out m.nc", "p.csv: it cannot be read as NetCDF"),
    ("map m --box 1 2 1 2 --out m.nc", "the map's box must have a width and a height, but it runs from"),
    ("map m --out m.tif", "m.tif: expected a name that ends in .nc (or .png or .pdf, for the picture alone)"),
    ("predict m p.csv --out a.csv --gradient --method dec-npae", "dec-npae has no gradients"),
    (
        "suggest m p.csv --out a.csv --criterion entropy",
        "unknown --criterion 'entropy': choose one of variance, mutual-information",
    ),
    ("suggest m p.csv --out a.csv --agent Zoe", "unknown agent 'Zoe': choose one of Ada, Bo"),
    ("suggest m p.csv --out a.csv --all --agent Ada", "--all is for every agent, and --agent for one: give one of"),
    ("suggest m p.csv --out a.csv --n 5", "expected at least 5 different candidates for each agent"),
    ("suggest m p.csv --out p.csv", "p.csv: the answer would replace the points: choose another name"),
    ("suggest m empty.csv --out a.csv", "empty.csv: expected points, got a file without rows"),
    ("suggest nowhere p.csv --out a.csv", "nowhere: there is no model.json: expected a folder written by"),
    ("sample m p.csv --out a.csv --method dec-npae", "dec-npae has no joint covariance"),
    ("sample m p.csv --out /proc/a.nc", "/proc/a.nc: it cannot be written: No such file or directory: choose"),
    ("sample m no.csv --out a.csv", "no.csv: there is no such file"),
    (
        "score m",
        "expected either a table of observations, or --folds and --split to hide rows of the model, got neither",
    ),
    ("score m t.csv --folds 3", "or --folds and --split to hide rows of the model, got both"),
    ("score m p.csv", "p.csv: there is no column 'sst'; it has lon, lat"),
    ("score m t.csv --level 95", "level must lie between 0 and 1, got 95"),
    ("score m --split rows", "unknown --split 'rows': choose one of random, agent, block"),
    ("score m --folds 100000", "folds: expected at most"),
    ("score m t.csv --agent-column ship", "t.csv: there is no column 'ship'; it has lon, lat, sst, boat"),
    ("info nowhere", "nowhere: there is no model.json: expected a folder written by `fleetgp fit`"),
    ("info t.csv", "t.csv: there is no model.json: expected a folder written by `fleetgp fit`"),
    ("plan no.toml", "no.toml: there is no such file"),
    ("plan t.csv", "t.csv: expected TOML"),
    ("plan fleet.toml --link fast", "link: expected a rate, and if you like a latency"),
    ("plan fleet.toml --private all", "unknown private 'all': choose one of rows, sums, likelihoods"),
    ("plan fleet.toml --accuracy high", "unknown accuracy 'high': choose one of cheap, balanced, best"),
    ("plan fleet.toml --agent Zoe", "there is no agent 'Zoe' in this fleet: choose one of Boot 7"),
    ("plan fleet.toml --queries 100000000000", "queries must be a whole number of at least 1 and at most 10,000,000"),
    ("verify nowhere", "nowhere: there is no model.json: expected a folder written by"),
    ("verify m --method best", "unknown prediction method 'best': choose one of"),
    ("verify m --hold nan", "hold must be a number of at least 0 and at most 0.5, got nan"),
    ("verify m --seed -1", "seed must be a whole number of at least 0, got -1"),
    ("watch no.toml", "no.toml: there is no such file"),
    ("watch t.csv", "t.csv: expected TOML"),
    ("watch fleet.toml --share 2", "expected --share above 0 and up to 1, got 2"),
    ("ask fleet.toml --agent Ada p.csv --out a.csv", "Boot 7"),
    ("retrain fleet.toml --agent Ada", "Boot 7"),
]
#: What is wrong in a description, and what is said of it beside the number of the line.
DESCRIBED = [
    ('"Boot 7"', '" Boot 7"', 6, "inner spaces"),
    ('"tcp/127.0.0.1:7401"', '"127.0.0.1"', 7, "endpoint"),
    ('target = "sst"', "target = 5", 3, "target"),
    ('name = "bay"', 'name = "bay"\ncolour = "red"', 2, "colour"),
    ('inputs = ["lon", "lat"]', 'inputs = "lon"', 2, "inputs"),
]


@pytest.fixture
def files(modelled: Path) -> Path:
    table = (modelled / "observations.csv").read_text(encoding="utf-8")
    (modelled / "t.csv").write_text(table, encoding="utf-8")
    (modelled / "tabs.csv").write_text(table.replace(",", "\t"), encoding="utf-8")
    (modelled / "latin.csv").write_bytes(table.replace("Ada", "Böe").encode("latin-1"))
    (modelled / "p.csv").write_text("lon,lat\n-71.5,41.5\n", encoding="utf-8")
    (modelled / "empty.csv").write_text("lon,lat\n", encoding="utf-8")
    (modelled / "fleet.toml").write_text(GOOD, encoding="utf-8")
    return modelled


def everything(folder: Path) -> list[tuple[Path, int]]:
    return sorted((file, file.stat().st_mtime_ns) for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize(("command", "said"), TABLE)
def test_a_bad_command_says_so_in_one_line_and_writes_nothing(command: str, said: str, files: Path) -> None:
    before = everything(files)
    assert said in wrong(*command.split(" "))
    assert everything(files) == before


@pytest.mark.parametrize(("right", "instead", "line", "said"), DESCRIBED)
def test_what_is_wrong_in_a_description_is_named_with_its_line(
    right: str, instead: str, line: int, said: str, files: Path
) -> None:
    (files / "fleet.toml").write_text(GOOD.replace(right, instead), encoding="utf-8")
    told = wrong("status", "fleet.toml")
    assert f"line {line}" in told
    assert said in told


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("fit", "Missing argument"),
        ("fit t.csv --whatever", "No such option: --whatever"),
        ("fit t.csv --tol abc", "Invalid value for '--tol'"),
        ("methods x", "unexpected extra argument"),
        ("retrain fleet.toml", "Missing option '--agent'"),
        ("nonsense", "No such command 'nonsense'"),
        ("sample m p.csv --out a.csv --n 1000000000000", "Invalid value for '--n'"),
        ("score m --folds 1", "Invalid value for '--folds'"),
        ("plan fleet.toml --queries 0", "Invalid value for '--queries'"),
        ("watch fleet.toml --port 99999", "Invalid value for '--port'"),
    ],
)
def test_a_command_that_does_not_exist_like_this_shows_how_to_get_help(command: str, said: str, files: Path) -> None:
    told = run(*command.split(" "), code=2)
    assert said in told.stderr
    assert "-h" in told.stderr
