"""python -m benchmarks [SECTION ..]: agents, likelihood, training, tree_training, prediction, tree_prediction,
conditioned, growth, season, processes, agreement, page, real, scale, fleets, summary,
week, first_fit; or all. scale_long (10^9 observations, 12 GB) is
run only by its name.

Prints tables as it goes and writes them to docs/benchmarks.md; sections that were not run stay as they were.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import scipy
from scipy.linalg import lapack

import fleetgp as fg
from benchmarks.first_fit import first_fit
from benchmarks.fleets import fleets
from benchmarks.peers import PEERS
from benchmarks.real import real
from benchmarks.scale import scale, scale_long
from benchmarks.summary import summary
from benchmarks.timing import Table, median, medians, once, seconds
from benchmarks.tree import tree_prediction, tree_training
from benchmarks.week import week
from fleetgp.engines.dense.engine import DenseEngine
from fleetgp.engines.dense.likelihood import compiled
from fleetgp.engines.expert import Expert, evaluate
from fleetgp.engines.moments.engine import MomentsEngine
from fleetgp.kernels.stationary import KERNELS
from fleetgp.linalg.threads import blas_threads, cores
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations

SE = KERNELS["se"]
THETA = np.array([1.2, 0.3, 1.3, 0.1])
THETA0 = (2.0, 0.5, 1.0, 1.0)
SIZES = (202, 405, 810, 2025, 4050, 8100)
#: What later sections compare with.
measured: dict[str, float] = {}


def bare(covariance: np.ndarray) -> None:
    lower, _ = lapack.dpotrf(covariance, lower=1, clean=0)
    lapack.dpotri(lower, lower=1, overwrite_c=1)


def covariance_of(inputs: np.ndarray) -> np.ndarray:
    matrix = SE(inputs, None, Hyperparameters.from_theta(THETA))
    matrix.flat[:: len(matrix) + 1] += THETA[-1] ** 2
    return np.asfortranarray(matrix)


def likelihood() -> Table:
    names = list(PEERS)
    table = Table(
        "One NLL with gradient", "N", "dpotrf+dpotri", "dense", "/ bare", "moments", "its pass", *names,
        "peer / dense", "peer / moments",
    )  # fmt: skip
    table.start()
    errors = []
    for n in SIZES:
        field = fg.synthetic_field(n)
        x, y = field.inputs, field.observations
        matrix = covariance_of(x)
        dense = DenseEngine(Observations(x, y), SE, 0)
        exact = dense.evaluate(np.log(THETA))
        times = medians({"bare": lambda m=matrix: bare(m), "dense": lambda: dense.evaluate(np.log(THETA))})
        floor, dense_time = times["bare"], times["dense"]
        del matrix
        moments = MomentsEngine(Observations(x, y), 0)
        found = moments.evaluate(np.log(THETA))
        with blas_threads(1):
            moments_time = median(lambda e=moments: e.evaluate(np.log(THETA)))
            one_pass = median(
                lambda: MomentsEngine(Observations(x, y), 0).prepare(Hyperparameters.from_theta(THETA)), most=5
            )
        errors.append((n, abs(found.nll - exact.nll), found.error))
        others = {}
        for name, peer in PEERS.items():
            try:
                call, values = peer(x, y, THETA), []
                others[name] = median(lambda c=call, v=values: v.append(c()))
                assert abs(values[0] - exact.nll) < 1e-5 * abs(exact.nll), f"{name}: {values[0]} is not {exact.nll}"
            except (ImportError, MemoryError) as problem:
                table.note(f"{name} at N = {n}: {problem!r}")
        best = min(others.values(), default=np.nan)
        measured[f"gpytorch {n}"] = others.get("GPyTorch", np.nan)
        table.add(
            n, seconds(floor), seconds(dense_time), f"{dense_time / floor:.2f}", seconds(moments_time),
            seconds(one_pass), *(seconds(others.get(name)) for name in names), f"{best / dense_time:.2f}",
            f"{best / moments_time:.0f}",
        )  # fmt: skip
    for n in (8_100, 1_000_000):
        field = fg.synthetic_field(n)
        moments = MomentsEngine(Observations(field.inputs, field.observations), 0)
        with blas_threads(1):
            once(lambda: moments.evaluate(np.log(THETA)))
            measured[f"moments {n}"] = median(lambda: moments.evaluate(np.log(THETA)))
            one_pass = once(lambda: MomentsEngine(Observations(field.inputs, field.observations), 0).prepare(
                Hyperparameters.from_theta(THETA)))  # fmt: skip
        table.note(f"moments at N = {n:,}: {seconds(measured[f'moments {n}'])}, after a pass of {seconds(one_pass)}")
    ratio = measured["moments 1000000"] / measured["moments 8100"]
    table.note(f"N = 1,000,000 takes {ratio:.2f} x the time of N = 8,100")
    for n, error, bound in errors:
        table.note(f"moments differ from dense at N = {n} by {error:.1e} in the NLL; certified: {bound:.1e}")
    table.note("peer: the fastest of the others. Medians; dpotrf+dpotri and dense by turns, with all threads allowed.")
    return table


def agents() -> Table:
    table = Table("A round of gradients: 40 agents of 202 points", "what", "time", "speed-up")
    table.start()
    field = fg.synthetic_field(8080)
    shards = fg.partition(field.inputs, field.observations, agents=40)
    thetas = np.log(np.tile(THETA, (40, 1)))
    matrices = [covariance_of(x) for x, _ in shards]

    def plain_loop() -> None:
        with blas_threads(1):
            for matrix in matrices:
                bare(matrix)

    works = {"dpotrf+dpotri, serial, one thread": plain_loop}
    for engine in ("dense", "moments", "auto"):
        experts = [Expert(Observations(x, y), SE, i, engine) for i, (x, y) in enumerate(shards)]
        works[f"FleetGP {engine}"] = lambda e=experts: evaluate(e, thetas)
    times = medians(works)
    serial = next(iter(times.values()))
    for name, time in times.items():
        table.add(name, seconds(time), f"{serial / time:.2f}")
    for name, peer in PEERS.items():
        try:
            calls = [peer(x, y, THETA) for x, y in shards]
        except ImportError:
            continue
        for call in calls:
            call()
        time = median(lambda c=calls: [call() for call in c])
        table.add(name, seconds(time), f"{serial / time:.2f}")
    return table


def training() -> Table:
    table = Table("Whole trainings on the paper's field, from theta0 = (2, 0.5, 1, 1)",
                  "method", "N", "M", "time", "rounds", "status", "engine")  # fmt: skip
    table.start()
    for n in (8100, 32_400):
        field = fg.synthetic_field(n)
        fleet = fg.Fleet(fg.partition(field.inputs, field.observations, agents=4), "path", kernel="se", normalize=False)
        time = once(lambda f=fleet: f.train("full-gp", theta0=THETA0))
        measured[f"full-gp {n}"] = time
        table.add(
            "full-gp", n, "-", seconds(time), fleet.last_fit.rounds, fleet.last_fit.status, fleet.last_fit.engine[0]
        )
    if np.isfinite(measured.get("gpytorch 8100", np.nan)):
        ratio = measured["gpytorch 8100"] / measured["full-gp 32400"]
        table.note(f"one dense GPyTorch evaluation at N = 8,100 takes {ratio:.1f} x the full-gp training at N = 32,400")
    field = fg.synthetic_field(8100)
    for method in ("dec-c-gp", "dec-apx-gp", "dec-gapx-gp"):
        for m in (4, 10, 20, 40):
            fleet = fg.Fleet(
                fg.partition(field.inputs, field.observations, agents=m), "path", kernel="se", normalize=False
            )
            # The nested solver takes some twenty evaluations per agent and round: whole trainings take minutes.
            short = {"rounds": 30, "tol": 0} if method == "dec-c-gp" and m > 4 else {}
            time = once(lambda f=fleet, name=method, o=short: f.train(name, theta0=THETA0, **o))
            used = sorted(set(fleet.last_fit.engine))
            table.add(method, 8100, m, seconds(time), fleet.last_fit.rounds, fleet.last_fit.status, "+".join(used))
    return table


def prediction() -> Table:
    table = Table("Predictions on the paper's field, N = 8,100, per query point (100 queries)",
                  "method", "M = 10", "rounds", "status", "M = 40", "rounds", "status")  # fmt: skip
    table.start()
    field = fg.synthetic_field(8100)
    queries = np.random.default_rng(1).uniform(0, 2, (100, 2))
    for method in fg.PREDICTION_METHODS:
        cells = []
        for m in (10, 40):
            fleet = fg.Fleet(
                fg.partition(field.inputs, field.observations, agents=m),
                "path",
                theta=THETA,
                kernel="se",
                normalize=False,
            )
            time, out = np.nan, None

            def ask(f=fleet, name=method):  # type: ignore[no-untyped-def]
                nonlocal out
                out = f.predict(queries, name)

            time = once(ask)
            cells += [seconds(time / len(queries)), out.rounds, out.status]
        table.add(method, *cells)
    return table


def conditioned() -> Table:
    done = subprocess.run([sys.executable, "-m", "benchmarks.conditioned"], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    table = Table("A conditioned fleet: 49 agents of 600 points, matern32, and 100 agents of 300", "what", "time",
                  "of all cores")  # fmt: skip
    table.start()
    for name, (clock, cores_used) in found.items():
        table.add(name, seconds(clock), seconds(cores_used))
    for method in ("rbcm", "grbcm"):
        ratio = found[f"first {method}"][1] / found[f"second {method}"][1]
        table.note(f"{method} at 20 points, again: {ratio:.0f} x faster")
    beside = found["dec-nn-grbcm, 100 agents"][1] / found["dec-nn-rbcm, 100 agents"][1]
    table.note(f"dec-nn-grbcm with 100 agents, 300 points: {beside:.2f} x dec-nn-rbcm")
    return table


def growth() -> Table:
    table = Table("Growth: 100 observations an agent, dec-apx-gp for 100 rounds, dec-nn-rbcm at 100 points",
                  "M", "training", "prediction", "s / 1000 agents", "peak memory", "trained: wire", "predicted: wire",
                  "participants", "RMSE", "status")  # fmt: skip
    table.start()
    for m in (100, 1_000, 10_000):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.growth", str(m)], check=True, capture_output=True, text=True
        )
        r = json.loads(done.stdout)
        both = (r["training"] + r["prediction"]) / m * 1000
        table.add(
            f"{m:,}", seconds(r["training"]), seconds(r["prediction"]), f"{both:.1f}", f"{r['memory'] / 1e9:.2f} GB",
            f"{r['training_bytes'] / 1e9:.2f} GB", f"{r['prediction_bytes'] / 1e9:.2f} GB", f"{r['participants']:.0f}",
            f"{r['rmse']:.3f}", r["status"],
        )  # fmt: skip
    table.note("The smallest run holds the compilation of the stacks, some two seconds.")
    table.note("predict gets the fleet's theta: to agree on the mean of all estimates by flooding is quadratic in M.")
    return table


def season() -> Table:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.season", "200000"], check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    table = Table(f"200,000 rows fed to five processes with a window of 10,000, {os.cpu_count()} cores for all of them",
                  "what, median", "first third after the window is full", "last third")  # fmt: skip
    table.start()
    for name, text, form in (("seconds", "an answer at 100 points", seconds),
                             ("write", "40 rows acknowledged", seconds),
                             ("memory", "memory of all five", lambda size: f"{size / 1e6:.0f} MB"),
                             ("disk", "state folders of all five", lambda size: f"{size / 1e6:.1f} MB"),
                             ("rows", "rows", lambda count: f"{count:,.0f}"),
                             ("kept", "groups of forgotten rows", lambda count: f"{count:,.0f}")):  # fmt: skip
        table.add(text, form(found[f"{name} first"]), form(found[f"{name} last"]))
    return table


def processes() -> Table:
    done = subprocess.run([sys.executable, "-m", "benchmarks.processes"], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    table = Table(f"Ten processes on a path, over Zenoh on loopback, {os.cpu_count()} cores for all of them",
                  "what", "TCP", "mutual TLS")  # fmt: skip
    table.start()
    table.add("a round that carries four numbers", seconds(found["bare tcp"]), seconds(found["bare tls"]))
    table.add("a round of dec-apx-gp, 100 points each", seconds(found["training tcp"]), seconds(found["training tls"]))
    for label, name in (("memory of an agent, resident", "resident"), ("the same, shared pages divided", "own")):
        table.add(label, *(f"{found[f'memory {kind}'][name] / 1e6:.0f} MB" for kind in ("tcp", "tls")))
    large = found["memory large"]
    table.add("memory of an agent with 2,000 points", f"{large['resident'] / 1e6:.0f} MB", "-")
    for fault, label in (("kill", "kill -9"), ("freeze", "SIGSTOP, with a lease of 2 s")):
        for name, text in (("detected", "a neighbour knows"), ("agreed", "all survivors agree on who is left"),
                           ("recovered", "they have trained anew")):  # fmt: skip
            times = found[fault][name]
            table.add(f"{label}: {text}", f"{seconds(np.median(times))} (worst {seconds(max(times))})", "-")
    table.note(f"In one process such a round takes {seconds(found['in process'])}.")
    table.note("Ten interpreters share the cores: on a machine each, a round is bounded by the slowest link instead.")
    return table


def agreement() -> Table:
    done = subprocess.run([sys.executable, "-m", "benchmarks.agreement"], check=True, capture_output=True, text=True)
    table = Table(f"Agreement of processes on a cycle on who is there, {os.cpu_count()} cores for all of them",
                  "agents", "agreed after all links are up", "hellos by then", "per agent and link",
                  "three come back: agreed", "hellos for that")  # fmt: skip
    table.start()
    for count, found in json.loads(done.stdout).items():
        table.add(count, seconds(found["start"]), f"{found['told'] / 1e3:.0f} kB",
                  f"{found['told'] / int(count) ** 2:.0f} B", seconds(found["back"]),
                  f"{found['told again'] / 1e3:.0f} kB")  # fmt: skip
    table.note("Hellos also tell twice a second that an agent is there, for as long as processes need to start.")
    return table


def page() -> Table:
    done = subprocess.run([sys.executable, "-m", "benchmarks.page"], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    table = Table("The page in Chromium, and what it costs the five example boats", "what", "median", "worst")
    table.start()
    for name, text in (("picture", "an update of 30 agents is drawn"), ("map", "the same with a new map of 100 x 100")):
        table.add(text, seconds(np.median(found[name])), seconds(max(found[name])))
    cost = found["cost"]
    table.note(f"Watched for five minutes, with a new row every 20 s: {cost['maps']} maps, {cost['time']:.1%} of the "
               f"fleet's time, {cost['bytes']:.1%} of its bytes.")  # fmt: skip
    table.note(f"A look at an agent, once a second: {seconds(cost['look'])}, {cost['told']:,} bytes to who watches.")
    return table


SECTIONS = {
    f.__name__: f
    for f in (agents, likelihood, training, tree_training, prediction, tree_prediction, conditioned, growth, season,
              processes, agreement, page, real, scale, fleets, summary, week, first_fit, scale_long)
}  # fmt: skip
#: Those that are run only where they are named.
LONG = ("scale_long",)


def main(names: list[str]) -> None:
    unknown = set(names) - set(SECTIONS)
    if unknown:
        raise SystemExit(f"unknown section {sorted(unknown)}: choose from {', '.join(SECTIONS)}")
    warnings.filterwarnings("ignore")
    version = f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    heading = (
        f"{cores()} threads, float64, {version}, compiled stacks: {'yes' if compiled() else 'no'}. "
        "Times are medians on a shared machine: compare within a table."
    )
    print(heading)
    chosen = names or [name for name in SECTIONS if name not in LONG]
    found = {name: SECTIONS[name]().markdown() for name in chosen}
    target = Path("docs/benchmarks.md")
    # A run of some sections renews these and keeps the others.
    for name in SECTIONS if target.exists() else ():
        kept = re.search(rf"<!-- {name} -->\n(.*?)(?=<!-- |\Z)", target.read_text(encoding="utf-8"), re.DOTALL)
        if name not in found and kept:
            found[name] = kept.group(1).rstrip() + "\n"
    parts = [f"<!-- {name} -->\n{found[name]}" for name in SECTIONS if name in found]
    report = "\n".join(["# Benchmarks", "", "`make bench` wrote this page.", "", heading, "", *parts])
    temporary = target.with_suffix(".tmp")
    temporary.write_text(report, encoding="utf-8")
    os.replace(temporary, target)
    print(f"\nwritten: {target}")


if __name__ == "__main__":
    main(sys.argv[1:])
