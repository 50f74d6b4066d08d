"""FleetGP and other libraries on real sea-surface temperature.

Each run is a process of its own, so that its memory is its own: python -m benchmarks.real RUN, as JSON. Tables of
some experiments alone, which are printed and not kept: python -m benchmarks.real atlantic-20000 days-100000
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, dataclass, field

from benchmarks.growth import peak_memory
from benchmarks.rivals import MODULES, RIVALS
from benchmarks.sea import NOISE, experiment, present
from benchmarks.timing import Table, Tables, seconds
from fleetgp.metrics import score

#: Seconds that a run may take.
LIMIT = 900
#: Threads that wait for each other sleep: on a busy machine, those that spin take a hundred times as long.
CALM = {"OMP_WAIT_POLICY": "passive"}
COLUMNS = ("library", "method", "kernel", "RMSE", "MAE", "CRPS", "interval score", "coverage", "training",
           "prediction", "peak memory", "said")  # fmt: skip
LIBRARIES = {"fleetgp": "FleetGP", "fleet": "FleetGP, 16 agents", "gpboost": "GPBoost", "scikit_learn": "scikit-learn",
             "svgp": "GPyTorch SVGP", "ski": "GPyTorch SKI"}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One training on so many observations of a data set (0 for all), and all predictions from it."""

    data: str
    size: int
    rival: str
    kernel: str = "matern32"
    options: dict[str, object] = field(default_factory=dict)

    @property
    def method(self) -> str:
        return ", ".join(str(v) if isinstance(v, str) else f"{k} {v}" for k, v in self.options.items())


def run(asked: Run) -> dict[str, object]:
    """Scores of each way of predicting at each kind of held-out places."""
    warnings.filterwarnings("ignore")
    data = experiment(asked.data, asked.size)
    mean, deviation = data.observations.mean(), data.observations.std()
    importlib.import_module(MODULES[asked.rival])  # takes seconds, and is no part of the training
    start = time.perf_counter()
    trained = RIVALS[asked.rival](data.inputs, (data.observations - mean) / deviation, asked.kernel, **asked.options)
    training = time.perf_counter() - start
    answers = []
    for way, predict in trained.ways.items():
        for place, (queries, seen) in data.held_out.items():
            start = time.perf_counter()
            means, deviations = predict(queries)
            taken = time.perf_counter() - start
            found = score((mean + deviation * means, (deviation * deviations) ** 2), seen).numbers
            answers.append({"way": way, "place": place, "prediction": taken, **found})
    return {"training": training, "said": trained.said, "memory": peak_memory(), "answers": answers}


def started(asked: Run) -> dict[str, object] | str:
    """What the run has found, in a process of its own, or why nothing."""
    command = [sys.executable, "-m", "benchmarks.real", json.dumps(asdict(asked))]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT, env=os.environ | CALM)
    except subprocess.TimeoutExpired:
        return f"over {LIMIT // 60} min"
    except subprocess.CalledProcessError as problem:
        return (problem.stderr.strip().splitlines() or [f"exit code {problem.returncode}"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


def runs(data: str, size: int) -> list[Run]:
    """Who takes part: on the largest set those alone that can be expected to end."""

    def of(rival: str, kernel: str = "matern32", **options: object) -> Run:
        return Run(data, size, rival, kernel, options)

    small = 0 < size <= 3000
    kernels = ("matern12", "matern32", "matern52", "se") if 0 < size <= 20_000 else ("matern12", "matern32")
    asked = [of("fleetgp", kernel, engine="vecchia") for kernel in kernels]
    if small:
        asked.append(of("fleetgp", engine="dense"))
    each = {"each": True} if data == "days" else {}
    if size == 100_000 and data == "atlantic":  # side by side, with as many neighbours
        asked += [of("gpboost", neighbours=20, each=True), of("fleetgp", engine="vecchia", n_neighbours=20)]
    asked += [
        of("gpboost", kernel, neighbours=20, **each)
        for kernel in ("matern32", "matern12")
        if size or kernel == "matern32"
    ]
    if not small:
        asked += [of("fleet", kernel, trainer="dec-fact-gp") for kernel in ("matern12", "matern32")]
    if size and size <= 20_000:
        asked.append(of("scikit_learn"))
    asked.append(of("svgp"))
    if data != "days":
        asked.append(of("ski"))
    return asked


TITLES = {
    "box": "the paper's box of the Gulf Stream (G1SST, 1 km)",
    "atlantic": "the north-west Atlantic (G1SST, 1 km)",
    "days": "ten days of MUR off California, with time as third input",
}
NOTES = (
    f"The analyses are smooth, so noise of {NOISE} K is added, also to the values that are held out: "
    f"all scores are of predicted observations, in K, and the best RMSE is some {NOISE}.",
    "The 10,000 places that are held out are drawn from all cells, or from squares of 30 x 30 cells, or from a day, in "
    "which nobody observed anything. Rows are sorted by their CRPS.",
    "Inputs are degrees north and degrees east times the cosine of the middle latitude (and days); observations are "
    "centred and scaled. Everybody has 2 threads and float64, and a process of its own, whose peak memory is told.",
    "FleetGP by engine vecchia trains with 30 neighbours unless told otherwise, and GPBoost with its default, 20; both "
    "answer from as many observations as said. GPBoost has one length-scale for all inputs (each: one for each), "
    "FleetGP one for each. SVGP has 500 inducing points and takes 500 steps of 1,024 rows, SKI 10 steps on a grid of "
    "100 x 100; scikit-learn gets the first 3,000 observations.",
    "Not everybody was tried equally hard. FleetGP has more rows (kernels, neighbours) than the others, so more "
    "chances to come first. That 120 observations answer better than 60 was seen on these same blocks; GPBoost got 120 "
    "too. "
    "The settings of SVGP and SKI were chosen to end in time, and not tuned: their rows say what this costs, not what "
    "they can do. One draw of noise and places; 40 blocks are few, so small differences there may be chance.",
)
EXPERIMENTS = (("box", 2500), ("atlantic", 20_000), ("atlantic", 100_000), ("atlantic", 0), ("days", 100_000))


def tables(data: str, size: int) -> list[Table]:
    """One for each kind of held-out places, the best CRPS first."""
    rows: dict[str, list[tuple[float, tuple[str, ...]]]] = {}
    failed: list[str] = []
    took: list[tuple[Run, float]] = []
    for asked in runs(data, size):
        found = started(asked)
        name = (LIBRARIES[asked.rival], asked.method, asked.kernel)
        if isinstance(found, str):
            print(f"   {name}: {found}", flush=True)
            failed.append(f"{', '.join(filter(None, name))}: {found}")
            continue
        took.append((asked, found["training"]))
        for a in found["answers"]:
            cells = (name[0], ", ".join(filter(None, (asked.method, a["way"]))), asked.kernel, f"{a['rmse']:.4f}",
                     f"{a['mae']:.4f}", f"{a['crps']:.4f}", f"{a['interval_score']:.4f}",
                     f"{100 * a['coverage']:.1f} %", seconds(found["training"]), seconds(a["prediction"]),
                     f"{found['memory'] / 1e9:.2f} GB", found["said"])  # fmt: skip
            print(f"   {a['place']:>10} " + " ".join(f"{cell:>12}" for cell in cells), flush=True)
            rows.setdefault(a["place"], []).append((a["crps"], cells))
    made = []
    count = f"{size:,}" if size else "all other"
    rows = rows or {"nowhere, since no run ended": []}
    for place, found_rows in rows.items():
        table = Table(f"{TITLES[data]}: {count} observations, 10,000 held out {place}", *COLUMNS)
        for _, cells in sorted(found_rows):
            table.rows.append(cells)
        table.notes += failed + ratios(took)
        made.append(table)
    return made


def ratios(took: list[tuple[Run, float]]) -> list[str]:
    """How much faster FleetGP trains than GPBoost where both ran with one kernel and as many neighbours."""
    return [
        f"training with {theirs.kernel}: GPBoost ({theirs.method}) takes {time / ours:.1f} x as long as FleetGP"
        for own, ours in took
        for theirs, time in took
        if (own.rival, theirs.rival, own.kernel) == ("fleetgp", "gpboost", theirs.kernel)
        and own.options.get("n_neighbours") == theirs.options["neighbours"]
    ]


def real(chosen: tuple[tuple[str, int], ...] = EXPERIMENTS) -> Tables:
    found = Tables("Real sea-surface temperature: FleetGP and other libraries")
    if not present():
        found.note("Skipped: the files of ../shared/data are not here.")
        return found
    for text in NOTES:
        found.note(text)
    for data, size in chosen:
        print(f"\n{data}, {size or 'all'}", flush=True)
        found.tables += tables(data, size)
    return found


if __name__ == "__main__":
    if sys.argv[1].startswith("{"):
        print(json.dumps(run(Run(**json.loads(sys.argv[1])))))
    else:
        names = [name.split("-") for name in sys.argv[1:]]
        print(real(tuple((data, int(size)) for data, size in names)).markdown())
