"""Clean environments, each with the wheel and one extra alone, made of what is installed here.

An environment gets links to the distributions that the wheel declares for the extra, to those that these declare, and
so on, and to no other; then pip, without an index, installs the wheel with the extra, and says so if something is
missing or too old. Nothing is downloaded, so that this takes a second, and what is not declared cannot be imported.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    PathDistribution,
    distribution,
    distributions,
    packages_distributions,
)
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

#: Seconds that nothing here takes, on any machine: only a hang is longer.
LONG = 300.0


@dataclass(frozen=True)
class Environment:
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, *command: str | Path) -> str:
        """stdout of a command that must succeed, in the environment's folder, with none of this process's settings."""
        done = run(*command, cwd=self.folder)
        assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
        return done.stdout

    def use(self, script: Path) -> str:
        """Isolated: neither the folder of the script nor PYTHONPATH is looked into."""
        return self.run(self.python, "-I", script)

    def execute(self, code: str) -> str:
        return self.run(self.python, "-I", "-c", code)


def run(*command: str | Path, cwd: Path, index: bool = False) -> subprocess.CompletedProcess[str]:
    """index: pip may look into the index that it is configured with."""
    unwanted = ("FLEETGP_", "PYTHON") if index else ("FLEETGP_", "PYTHON", "PIP_")
    settings = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    settings |= {"OPENBLAS_NUM_THREADS": "1"} | ({} if index else {"PIP_CONFIG_FILE": os.devnull})
    return subprocess.run(command, cwd=cwd, env=settings, capture_output=True, text=True, timeout=LONG, check=False)


def in_wheel(wheel: Path) -> Distribution:
    """What a wheel says about itself."""
    [folder] = [path for path in zipfile.Path(wheel).iterdir() if path.name.endswith(".dist-info")]
    return PathDistribution(folder)


def requirements(declared: Distribution, extra: str) -> Iterator[Requirement]:
    """What a distribution needs for an extra ("": for itself) on this machine."""
    for requirement in map(Requirement, declared.requires or ()):
        if requirement.marker is None:
            wanted = extra == ""
        else:
            wanted = requirement.marker.evaluate({"extra": extra})
        if wanted:
            yield requirement


def closure(wheel: Path, extra: str) -> dict[str, Distribution]:
    """All distributions that the wheel with an extra needs, as they are installed here; without the wheel itself."""
    own = in_wheel(wheel)
    found: dict[str, Distribution] = {}
    seen, waiting = set(), [(str(own.name), ""), (str(own.name), extra)]
    while waiting:
        name, part = waiting.pop()
        if (name, part) in seen:
            continue
        seen.add((name, part))
        if name == own.name:
            declared = own
        else:
            declared = found[name] = installed(name)
        for requirement in requirements(declared, part):
            needed = canonicalize_name(requirement.name)
            waiting += [(needed, each) for each in ("", *requirement.extras)]
    return found


def importable(wheel: Path, extra: str) -> list[str]:
    """The modules of what an extra brings itself."""
    own = in_wheel(wheel)
    brought = {canonicalize_name(r.name) for r in requirements(own, extra)} - {str(own.name)}
    names = packages_distributions().items()
    return sorted(m for m, of in names if not m.startswith("_") and brought & {canonicalize_name(o) for o in of})


def installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise AssertionError(
            f"{name} is declared, and not installed here: every extra belongs to dev, and to requirements.lock"
        ) from None


def clean_environment(folder: Path, wheel: Path, extra: str = "") -> Environment:
    """A new one, in which only the wheel with this extra ("": without any) is installed."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    packages = next(folder.glob("lib/python*/site-packages"))
    for needed in closure(wheel, extra).values():
        link(needed, packages)
    wanted = f"{in_wheel(wheel).name}{f'[{extra}]' if extra else ''} @ {wheel.as_uri()}"
    environment = Environment(folder)
    environment.run(*pip_for(environment), "--no-index", wanted)
    return environment


def pip_for(environment: Environment) -> tuple[str | Path, ...]:
    return (sys.executable, "-m", "pip", "--python", environment.python, "install", "--no-compile", "--quiet")


def other_python(version: str) -> Path | None:
    """A Python of this version, like "3.13", that is on the path or known to pyenv there; None if none starts."""
    found = []
    if (pyenv := shutil.which("pyenv")) is not None:
        found = sorted(Path(pyenv).resolve().parents[1].glob(f"versions/{version}.*/bin/python"), reverse=True)
    if (on_path := shutil.which(f"python{version}")) is not None:
        found.insert(0, Path(on_path))
    told = "import sys, venv; print('{}.{}'.format(*sys.version_info))"
    for python in found:
        done = run(python, "-I", "-c", told, cwd=Path.cwd())
        if (done.returncode, done.stdout.strip()) == (0, version):
            return python
    return None


def environment_of(python: Path, folder: Path, wheel: Path) -> Environment | str:
    """A new one of another Python, with the wheel and what it needs from pip's index; in words why there is none.

    What is installed here is compiled for this Python, and is of no use to another.
    """
    run(python, "-m", "venv", "--without-pip", folder, cwd=folder.parent).check_returncode()
    environment = Environment(folder)
    needed = map(str, requirements(in_wheel(wheel), ""))
    done = run(*pip_for(environment), *needed, cwd=folder, index=True)
    if done.returncode != 0:
        return done.stderr.strip()
    environment.run(*pip_for(environment), "--no-index", wheel)
    return environment


def link(installed: Distribution, packages: Path) -> None:
    """Links to all that it brought, but commands: to whole folders, and in those that others use too to files."""
    here = Path(str(installed.locate_file("")))
    for name in {file.parts[0] if file.parts[0] not in shared() else str(file) for file in files_of(installed)}:
        target = packages / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(here / name)


def files_of(installed: Distribution) -> list[PurePosixPath]:
    """Without what is outside of the folder for packages."""
    record = csv.reader((installed.read_text("RECORD") or "").splitlines())
    return [PurePosixPath(name) for name, *_ in record if not name.startswith(("../", "/"))]


@cache
def shared() -> set[str]:
    """Folders into which more than one distribution has brought something: namespaces, and __pycache__."""
    brought = Counter(name for each in distributions() for name in {file.parts[0] for file in files_of(each)})
    return {name for name, times in brought.items() if times > 1}
