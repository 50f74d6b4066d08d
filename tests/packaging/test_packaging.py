"""What people install: the distributions, and every extra alone in a clean environment."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import fleetgp
from tests.conftest import mostly_long
from tests.packaging.distribution import ROOT, Distributions, build, faults, found, in_wheel, metadata, sources
from tests.packaging.environments import clean_environment, environment_of, importable, installed, other_python, run
from tests.shared import made_once

USES = Path(__file__).parent / "uses"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = sorted(set(PROJECT["optional-dependencies"]) - {"dev"})


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return found(made_once(tmp_path_factory, "dist", build))


def test_the_distributions_are_whole_and_can_be_uploaded(built: Distributions) -> None:
    assert faults(built) == []
    assert "fleetgp/py.typed" in in_wheel(built.wheel)
    assert {name.partition("/")[0] for name in in_wheel(built.wheel)} == {"fleetgp"}, "no experiments of the paper"
    told = metadata(built.wheel)
    assert told["Version"] == fleetgp.__version__
    assert "version" in PROJECT["dynamic"], "it is written down once, in version.py"


@pytest.mark.parametrize("git", ["absent", "refuses"])
def test_the_files_of_the_project_are_known_without_git(
    git: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Git is not installed, or refuses the folder, as it does one that belongs to another user."""
    for name in (".git/HEAD", ".gitignore", ".ci/run", ".venv/bin/python", "src/a.py", "src/__pycache__/a.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    if git == "absent":
        monkeypatch.setenv("PATH", str(tmp_path))
    assert sources(tmp_path) == [".ci/run", ".gitignore", "src/a.py"]


def test_dev_has_every_extra() -> None:
    """So that what is installed for development is enough to make an environment of each."""
    [own] = [r for r in map(Requirement, PROJECT["optional-dependencies"]["dev"]) if r.name == "fleetgp"]
    nested = {
        extra
        for name in own.extras
        for r in map(Requirement, PROJECT["optional-dependencies"][name])
        if r.name == "fleetgp"
        for extra in r.extras
    }
    assert set(EXTRAS) - own.extras - nested == set()


def test_what_an_extra_is_for_is_that_of_an_extra() -> None:
    assert {file.stem for file in USES.glob("[!_]*.py")} - {"core", *EXTRAS} == set()


@pytest.mark.parametrize("extra", mostly_long(["", *EXTRAS], "", "cli", "fleet"))
def test_an_extra_works_alone(extra: str, built: Distributions, tmp_path: Path) -> None:
    """Each is tried by its file in `uses`; one that has none by importing what it brings."""
    environment = clean_environment(tmp_path / "environment", built.wheel, extra)
    script = USES / f"{extra or 'core'}.py"
    if script.exists():
        environment.use(script)
    else:
        environment.execute(f"import fleetgp, {', '.join(importable(built.wheel, extra))}")
    if extra == "":
        done = run(environment.folder / "bin" / "fleetgp", "--help", cwd=environment.folder)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines() == [done.stderr.strip()]
        assert "fleetgp[cli]" in done.stderr


def test_exact_versions_are_to_be_had_by_every_python_that_we_name() -> None:
    """Of the oldest one its first release: systems keep that for years."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pinned = [line.partition("==") for line in lines if "==" in line]
    assert len(pinned) > 50
    for name, _, version in pinned:
        package = installed(name.partition("[")[0])
        assert package.version == version, f"{name}: make .venv/.installed"
        assert SpecifierSet(package.metadata["Requires-Python"] or "").contains(oldest), (name, version)


#: Besides the one that the tests run with.
OTHERS = [version for version in ("3.11", "3.12", "3.13") if version != "{}.{}".format(*sys.version_info)]


@pytest.mark.parametrize("version", mostly_long(OTHERS, OTHERS[-1]))
def test_another_python_works(version: str, built: Distributions, tmp_path: Path) -> None:
    assert f"Programming Language :: Python :: {version}" in metadata(built.wheel).get_all("Classifier", [])
    python = other_python(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    environment = environment_of(python, tmp_path / "environment", built.wheel)
    if isinstance(environment, str):
        pytest.skip(f"Python {version}: NumPy and SciPy for it cannot be had here: {environment}")
    assert environment.execute("import sys; print(sys.version)").startswith(version)
    environment.use(USES / "core.py")


def test_the_citation_names_the_project_and_the_paper() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited), "what the format requires"
    assert "version" not in cited, "it is written down once, in version.py"
    assert (cited["license"], cited["keywords"]) == (PROJECT["license"], PROJECT["keywords"])
    assert cited["authors"] == PROJECT["authors"]
    [paper] = cited["references"]
    assert paper["title"] in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert [author["family-names"] for author in paper["authors"]] == ["Kontoudis", "Stilwell"]
