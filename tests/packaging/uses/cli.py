"""The extra "cli": the command, from a table to a map with its picture."""

import subprocess
import sys
from pathlib import Path

import fleetgp as fg

field = fg.synthetic_field(60, seed=1)
rows = [f"{x},{y},{z}" for (x, y), z in zip(field.inputs, field.observations, strict=True)]
Path("field.csv").write_text("\n".join(["x,y,z", *rows]), encoding="utf-8")
command = Path(sys.executable).with_name("fleetgp")


def fleetgp(arguments: str, code: int = 0) -> str:
    done = subprocess.run([command, *arguments.split()], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout or done.stderr


assert "the paper's experiments are not in the wheel: clone the repository" in fleetgp("reproduce training", code=2)
fleetgp("fit field.csv --inputs x y --target z --n-agents 2 --out model")
fleetgp("map model --grid 5x5 --out map.nc")
assert Path("map.nc").stat().st_size > 0
assert Path("map.png").stat().st_size > 0
