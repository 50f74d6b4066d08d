"""Compile the loops of Vecchia's engine once, on the disk: `python -m tests.compiled_loops`.

Tests run in several processes, which begin together: in a fresh checkout each would compile them for itself.
"""

from __future__ import annotations

import fleetgp as fg
from tests.conftest import paper_shards

#: A stationary kernel, whose loops are its own, and one for the loops of all others.
KERNELS = ("matern32", "matern32(1) * matern12(2) + linear(1)")


def main() -> None:
    for kernel in KERNELS:
        fleet = fg.Fleet(paper_shards(300, 2), kernel=kernel, normalize=False)
        theta0 = [1.0] * len(fleet.names)
        fleet.train("fact-gp", theta0=theta0, rounds=1, tol=0, engine="vecchia")
        fleet.predict([[0.5, 0.5]], "dec-rbcm", theta=theta0, engine="vecchia")


if __name__ == "__main__":
    main()
