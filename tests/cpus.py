"""The numerical tests with the arithmetic of other processors: `python -m tests.cpus`, `--short` for two of them.

OpenBLAS chooses its kernels by the processor; OPENBLAS_CORETYPE chooses for it. NumPy's own loops and Numba's code
follow the processor too: for the oldest one they are held back as well. Last bits differ between these, and so does
the order of sums with the number of threads. No verdict may.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NUMERICAL = ("engines", "kernels", "model", "linalg", "graph", "consensus", "training", "prediction",
             "fleet/test_hosting.py", "reproduction/test_training.py", "data/test_synthetic.py", "storage",
             "same")  # fmt: skip
#: What is fast and tells most: both engines against each other and against exact arithmetic, and equality of bits.
TELLING = (
    "engines/dense",
    "engines/moments",
    "engines/test_conformance.py",
    "engines/test_engines.py",
    "linalg",
    "data/test_synthetic.py",
    "fleet/test_hosting.py",
)
#: Of these, what depends on how many threads share a product or a factorization.
SHARED = ("engines/dense", "engines/moments", "linalg", "fleet/test_hosting.py")
SLOW = (
    "predictions_are_the_same or ends_at_the_same_place or npae_by_vectors or several or dec-c-gp or long_series or "
    "papers_field or too_much_for_dense"
)
#: What the last run of the tests left out, and why.
LEFT_OUT = Path("build/left-out.txt")
PROBE = """
import json, os
import numpy, scipy.linalg
from numpy._core import _multiarray_umath as umath
from threadpoolctl import threadpool_info
told = [(i["filepath"], i["internal_api"], i.get("architecture"), i["num_threads"]) for i in threadpool_info()]
dispatched = [f for f in umath.__cpu_dispatch__ if umath.__cpu_features__[f]]
print(json.dumps({"blas": told, "numpy": dispatched, "cores": len(os.sched_getaffinity(0))}))
"""


@dataclass(frozen=True)
class Processor:
    """name: for OPENBLAS_CORETYPE.  needs: a flag of /proc/cpuinfo.  oldest: hold back NumPy and Numba too."""

    name: str
    needs: str
    oldest: bool = False


PROCESSORS = (
    Processor("Nehalem", "sse4_2", oldest=True),
    Processor("Haswell", "avx2"),
    Processor("Zen", "avx2"),
    Processor("SkylakeX", "avx512f"),
)


def probed(environment: dict[str, str]) -> Any:
    """What a process with this environment computes with."""
    command = [sys.executable, "-c", PROBE]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def environment(processor: Processor, threads: int) -> dict[str, str]:
    chosen = {
        "OPENBLAS_CORETYPE": processor.name,
        "OPENBLAS_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
    }
    if processor.oldest:
        chosen["NPY_DISABLE_CPU_FEATURES"] = " ".join(probed({**os.environ})["numpy"])
        chosen["NUMBA_CPU_NAME"] = processor.name.lower()
    return {**os.environ, **chosen}


def flags() -> set[str]:
    """What this processor can do; nothing where it is not an x86 under Linux."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {flag for line in lines if line.startswith("flags") for flag in line.partition(":")[2].split()}


def choices(short: bool) -> Iterator[tuple[Processor, int]]:
    """One thread and two of each processor that this machine can stand in for; short: two of all these."""
    able, seen = flags(), set()
    for processor in PROCESSORS:
        for threads in (1, 2):
            if short and (processor.name, threads) not in (("Nehalem", 1), ("Haswell", 2)):
                continue
            if processor.needs not in able:
                leave_out(processor, threads, f"this machine has no {processor.needs}")
                continue
            found = probed(environment(processor, threads))
            kernels = check(processor, threads, found)
            if (kernels, threads) in seen:
                print(f"== {label(processor, threads)}: {kernels}'s kernels in these builds, tried above", flush=True)
            elif threads > found["cores"]:
                leave_out(processor, threads, "there is one core")
            else:
                yield processor, threads
            seen.add((kernels, threads))


def label(processor: Processor, threads: int) -> str:
    return f"{processor.name}, BLAS threads: {threads}"


def leave_out(processor: Processor, threads: int, why: str) -> None:
    """Also into the table with which `.ci/run` ends."""
    print(f"== {label(processor, threads)}: left out, {why}", flush=True)
    if LEFT_OUT.exists():
        with LEFT_OUT.open("a", encoding="utf-8") as table:
            table.write(f"   1  {label(processor, threads):40}  {why}\n")


def check(processor: Processor, threads: int, found: Any) -> str:
    """The kernels in use; an error where the choice had no effect in NumPy's BLAS or in SciPy's."""
    kernels = {architecture for _, _, architecture, _ in found["blas"]}
    # Builds without kernels of Zen's own take Haswell's; anything else that was not asked for is a failure.
    wanted = {processor.name, "Haswell"} if processor.name == "Zen" else {processor.name}
    right = all(api == "openblas" for _, api, _, _ in found["blas"]) and len(found["blas"]) >= 2
    if not right or len(kernels) != 1 or not kernels <= wanted:
        raise SystemExit(f"OPENBLAS_CORETYPE={processor.name} had no effect: expected it in two OpenBLAS, got {found}")
    if {count for *_, count in found["blas"]} != {min(threads, found["cores"])}:
        raise SystemExit(f"OPENBLAS_NUM_THREADS={threads} had no effect: got {found}")
    if processor.oldest and found["numpy"]:
        raise SystemExit(f"NPY_DISABLE_CPU_FEATURES had no effect: NumPy still uses {found['numpy']}")
    return str(*kernels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a fast part of the tests, with two processors")
    short = parser.parse_args().short
    if not flags():
        print("only an x86 under Linux can stand in for other processors: nothing was tried")
        return
    failed, count = [], 0
    for processor, threads in choices(short):
        print(f"== {label(processor, threads)}", flush=True)
        # Two processes with two threads each would only fight over the cores.
        workers = ["-n", "2"] if threads == 1 else ["-n", "0"]
        names = NUMERICAL if not short else TELLING if threads == 1 else SHARED
        files = [f"tests/{name}" for name in names]
        chosen = ["-k", f"not ({SLOW})"] if short else []
        command = [sys.executable, "-m", "pytest", "-q", "--durations=5", *workers, *chosen, *files]
        count += 1
        if subprocess.run(command, env=environment(processor, threads), check=False).returncode != 0:
            failed.append(label(processor, threads))
    print(f"{count - len(failed)} of {count} passed" + (f"; failed: {'; '.join(failed)}" if failed else ""))
    sys.exit(bool(failed) or count == 0)


if __name__ == "__main__":
    main()
