"""Source distribution and wheel, built and checked: `python -m tests.packaging.distribution dist` (`make dist`).

They are built from a copy of the files that a commit would hold: what an earlier build left in the checkout, as its
list of sources, has no say, and nothing is left there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
#: What is no part of a checkout where there is no Git to say so.
LEFT_BY_TOOLS = (
    *("build", "dist", "*.egg-info", "__pycache__", "PKG-INFO", "setup.cfg"),
    *(".[!cg]*", ".git", "demo-output", "reproduction-output", "_build", "screenshots"),
)


class Distributions(NamedTuple):
    source: Path
    wheel: Path


def sources(root: Path = ROOT) -> list[str]:
    """The files that belong to the project, relative to its folder."""
    if (root / ".git").exists() and shutil.which("git") is not None:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode == 0:  # Git refuses a folder of another user
            return sorted(name for name in done.stdout.split("\0") if name and (root / name).is_file())
    files = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(
        str(file) for file in files if not any(Path(part).match(left) for part in file.parts for left in LEFT_BY_TOOLS)
    )


def build(folder: Path) -> Distributions:
    """Both, in a folder that is made: the wheel from the unpacked source distribution."""
    with tempfile.TemporaryDirectory() as copy:
        for name in sources():
            target = Path(copy, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        # The development environment has the build's requirements; `build` checks that they are met.
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), copy]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}{done.stderr}\nthe distributions could not be built")
    return found(folder)


def found(folder: Path) -> Distributions:
    """Those that were built there."""
    [source], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Distributions(source, wheel)


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def in_source(source: Path) -> set[str]:
    """The files of a source distribution, without its folder."""
    with tarfile.open(source) as archive:
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


def in_wheel(wheel: Path) -> set[str]:
    """The files that a wheel installs, without what is said about them."""
    with ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def faults(built: Distributions) -> list[str]:
    """What is wrong with them, in words."""
    files = sources()
    package = {name.removeprefix("src/") for name in files if name.startswith("src/")}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    differences = {
        "not in the source distribution": set(files) - in_source(built.source),
        "not in the wheel": package - in_wheel(built.wheel),
        "in the wheel, and not of the package": in_wheel(built.wheel) - package,
        "an extra that the wheel does not have": set(extras) - set(metadata(built.wheel).get_all("Provides-Extra", [])),
    }
    found = [f"{what}: {name}" for what, names in differences.items() for name in sorted(names)]
    command = [sys.executable, "-m", "twine", "check", "--strict", str(built.source), str(built.wheel)]
    twine = subprocess.run(command, capture_output=True, text=True, check=False)
    return found if twine.returncode == 0 else [*found, twine.stdout + twine.stderr]


def main() -> None:
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        built = build(Path(place))
        if found := faults(built):
            sys.exit("\n".join(found))
        folder.mkdir(parents=True, exist_ok=True)
        for file in built:
            print(shutil.copy(file, folder))


if __name__ == "__main__":
    main()
