"""The first moments: `import fleetgp` is light and complete, and Ctrl-C during imports is no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fleetgp as fg


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


def test_importing_the_package_loads_nothing_large() -> None:
    loaded = json.loads(python("import json, sys, fleetgp; print(json.dumps(sorted(sys.modules)))"))
    assert not {"numpy", "scipy", "pandas", "typing", "fleetgp.fleet"} & set(loaded)


#: What an agent's process does not load before it needs it: every process of a fleet would pay for it at its start.
LATER = {
    *("matplotlib", "netCDF4", "numba", "pandas", "pyarrow", "ray", "safetensors", "sklearn", "xarray", "zarr"),
    *("scipy.fft", "scipy.interpolate", "scipy.ndimage", "scipy.optimize", "scipy.spatial", "scipy.special"),
    *("scipy.stats", "fleetgp.advice", "fleetgp.estimator", "fleetgp.page", "fleetgp.plot", "fleetgp.storage"),
}


def test_an_agent_starts_without_what_it_hardly_ever_needs(tmp_path: Path) -> None:
    """Also where its data are a CSV of plain numbers."""
    (tmp_path / "a.csv").write_text("x,boat,t\n1,ada,3\n0.25,ada,-4\n", encoding="utf-8")
    code = (
        "import json, sys, typer, fleetgp.cli.app as cli, fleetgp.agent.service\n"
        "from fleetgp.agent.observations import ObservationStore, Path\n"
        "group = typer.main.get_command(cli.app)\n"
        "group.get_command(group.make_context('fleetgp', [], resilient_parsing=True), 'agent')\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "assert ObservationStore(folder / 'a.csv', ['x'], 't', folder / 'rows.jsonl').rows == 2\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    loaded = set(json.loads(python(code)))
    assert not LATER & loaded
    assert "fleetgp.cli.fit" not in loaded, "a command loads no other"


def test_every_public_name_is_there_and_is_the_one_of_its_module() -> None:
    assert set(fg.__all__) <= set(dir(fg))
    for name in fg.__all__:
        assert getattr(fg, name) is not None
    from fleetgp.fleet import Fleet

    assert fg.Fleet is Fleet
    assert not hasattr(fg, "Flet")
    told = python(
        "import fleetgp as fg\n"
        "from fleetgp import *\n"
        "assert Fleet is fg.Fleet and partition is fg.partition\n"
        "print(fg.io.read_observations.__name__, fg.errors.InputError.__name__, fg.storage.model.Model.__name__)"
    )
    assert told.split() == ["read_observations", "InputError", "Model"]


# ---- Ctrl-C -----------------------------------------------------------------------------------------------------


#: `python -m fleetgp methods`, with something that happens whenever a module is about to be imported.
WATCHED = """
import json, os, runpy, signal, sys
wanted, names = sys.argv[1], []
def watch(event, arguments):
    if event == "import":
        names.append(arguments[0])
        if arguments[0] == wanted:
            os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(watch)
sys.argv = ["fleetgp", "methods"]
try:
    runpy.run_module("fleetgp", run_name="__main__", alter_sys=True)
finally:
    if not wanted:
        print(json.dumps(names), file=sys.stderr)
"""


def watched(wanted: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WATCHED, wanted], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_at_any_moment_of_the_imports_is_one_line_and_code_130() -> None:
    """The process sends the signal to itself, so that no moment is missed on a busy machine."""
    everything = watched("")
    assert everything.returncode == 0
    told = json.loads(everything.stderr.splitlines()[-1])
    names = list(dict.fromkeys(told[told.index("fleetgp.cli.app") :]))
    assert {"numpy", "scipy", "typer"} <= set(names), "the imports are behind the entry point"
    for moment in ["fleetgp.cli.app", "numpy", "numpy._core._multiarray_umath", *names[7 :: len(names) // 4]]:
        found = watched(moment)
        assert found.returncode == 130, (moment, found.stderr)
        assert "Traceback" not in found.stderr, moment
        assert found.stderr.startswith("error: interrupted"), moment
        assert len(found.stderr.splitlines()) == 1, moment


def test_an_interruption_that_an_import_turns_into_another_error_is_still_one(
    tmp_path: Path,
) -> None:
    """Compiled modules report whatever went wrong in an import of theirs as an ImportError."""
    (tmp_path / "t.csv").write_text("lon,lat,sst\n1,2,3\n2,3,4\n", encoding="utf-8")
    code = (
        "import builtins, signal, sys\n"
        "from fleetgp import cli\n"
        "genuine = builtins.__import__\n"
        "def importing(name, *rest, **more):\n"
        "    if name == 'pandas' and not cli.INTERRUPTION.starting:\n"
        "        try:\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "        except KeyboardInterrupt:\n"
        "            raise ImportError('numpy._core.multiarray failed to import') from None\n"
        "    return genuine(name, *rest, **more)\n"
        "builtins.__import__ = importing\n"
        "sys.argv = 'fleetgp fit t.csv --inputs lon lat --target sst --n-agents 1 --out m'.split()\n"
        "cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False
    )
    assert done.returncode == 130, done.stderr
    assert "interrupted" in done.stderr
    assert "pip install" not in done.stderr
