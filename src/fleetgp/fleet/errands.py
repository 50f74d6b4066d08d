"""Independent pieces of work at the workers of a Ray cluster: one core each, and done again where a worker is lost."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from fleetgp.errors import WorkerLostError
from fleetgp.network.ray.crew import LOSSES, START


def errands(
    function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], workers: int, what: str
) -> Generator[tuple[int, Any]]:
    """(number, function(*arguments[number])) for all, begun in their order, so many at once; each as soon as it is
    there. An error of the function is raised as it is. what: a piece of work, in words.
    """
    _check_room()
    call = ray.remote(num_cpus=1, max_retries=LOSSES)(function)
    busy: dict[Any, int] = {}
    begun = 0
    try:
        while busy or begun < len(arguments):
            while begun < len(arguments) and len(busy) < workers:
                busy[call.remote(*arguments[begun])] = begun
                begun += 1
            (ready, *_), _ = ray.wait(list(busy))
            found = _got(ready, what)
            yield busy.pop(ready), found
    finally:
        if ray.is_initialized():
            for left in busy:
                ray.cancel(left, force=True)


def _check_room() -> None:
    """One clear error where no process can start: work would wait for it for ever."""
    ready, _ = ray.wait([ray.remote(num_cpus=1)(_here).remote()], timeout=START)
    if not ready:
        raise WorkerLostError(
            f"expected a worker to start within {START:g} s, but none did: has the cluster a free core? Wait until it "
            "has"
        )


def _here() -> None:
    """In a process of the cluster."""


def _got(call: Any, what: str) -> Any:
    try:
        return ray.get(call)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        raise WorkerLostError(
            f"more than {LOSSES} workers were lost with one {what}: is their memory enough?"
        ) from error
