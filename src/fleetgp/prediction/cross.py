"""What agents tell each other so that each can compute its row of C_A, the covariances between their means.

Agent i's mean at x* is w_i'y_i with w_i = C_i^-1 k_i*, and [C_A]_ij = w_i' k(X_i, X_j) w_j. By weights, as in the
paper, w_i and the inputs X_i travel. By vectors, k(x, x') = phi(x)'phi(x') on the box of the whole fleet, so that
[C_A]_ij = a_i'a_j with a_i = Phi_i'w_i: one short vector per query travels, and no input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus.reductions import Reduction
from fleetgp.engines.base import Posterior, WeightedPosterior
from fleetgp.engines.basis import Basis, Box, degree_for
from fleetgp.engines.exact import cross_covariance
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.hyperparameters import Hyperparameters

#: What the common basis may miss of k(x, x), on average over the box.
DROP = 1e-15
#: What the expansion along an axis may miss of the kernel.
EXPANSION = 1e-20
#: Two agents have the same basis if its functions, weighed and added up at one point, differ by less than this.
SAME = 1e-6
#: That point, from the centre of the box to its corner: no zero of many functions, as the centre would be.
PROBE = 0.3
#: More functions than this on the fleet's box, and the inputs travel instead.
LONGEST = 2000
#: Functions of an axis as short as a length-scale or less, about: with more axes than three there is no basis.
FEWEST = 10.0
#: The agreed box is rounded outwards to this part of a length-scale, so that its faces are nobody's inputs.
STEP = 0.125


class Carrier(Protocol):
    """blocks: (K_i, T) of each hosted agent."""

    @property
    def blocks(self) -> Sequence[Array]: ...

    def parts(self, takes: BoolArray | None = None) -> dict[str, list[Array]]:
        """What travels besides the blocks; with `takes` (A, T) only of the agents that take part at all."""
        ...

    def between(self, own: int, other: dict[str, Array], block: Array) -> Array:
        """[C_A]_ij, (T,), of the hosted agent `own` and another one."""
        ...

    def covariances(self, sent: Mapping[str, Sequence[Array]], blocks: Sequence[Array]) -> Array:
        """C_A, (T, M, M), from what everyone sent; its diagonal holds no meaning."""
        ...


class ByWeights:
    """Inputs and weights of the observations that count: N_i (D + T) scalars, or fewer."""

    def __init__(self, posteriors: Sequence[WeightedPosterior], kernel: Kernel, queries: Array) -> None:
        weighted = [p.weighted(queries) for p in posteriors]
        self.data = [data for data, _ in weighted]
        self.blocks = [weights for _, weights in weighted]
        self.kernel, self.models = kernel, [p.hyperparameters for p in posteriors]

    def parts(self, takes: BoolArray | None = None) -> dict[str, list[Array]]:
        packed = [data.packed for data in self.data]
        if takes is not None:
            packed = [x[: len(x) * t.any()] for x, t in zip(packed, takes, strict=True)]
        return {"inputs": packed}

    def between(self, own: int, other: dict[str, Array], block: Array) -> Array:
        if not len(other["inputs"]):
            return np.zeros(block.shape[1])
        mine, its = self.data[own].inputs, self._places(other["inputs"])
        return cross_covariance(self.kernel, self.models[own], (mine, self.blocks[own]), (its, block))

    def _places(self, packed: Array) -> Array:
        """Where the rows are that another agent sent."""
        return packed[:, : self.data[0].dimension]

    def covariances(self, sent: Mapping[str, Sequence[Array]], blocks: Sequence[Array]) -> Array:
        kernel, h = self.kernel, self.models[0]
        result = np.zeros((blocks[0].shape[1], len(blocks), len(blocks)))
        speaking = [j for j, x in enumerate(sent["inputs"]) if len(x)]
        inputs = {j: self._places(sent["inputs"][j]) for j in speaking}
        for i in speaking:
            for j in speaking[: speaking.index(i)]:
                result[:, i, j] = cross_covariance(kernel, h, (inputs[i], blocks[i]), (inputs[j], blocks[j]))
                result[:, j, i] = result[:, i, j]
        return result


class ByVectors:
    """One vector per query in the common basis: r T scalars."""

    def __init__(self, posteriors: Sequence[Posterior], basis: Basis, queries: Array) -> None:
        self.blocks = [p.projected(basis, queries) for p in posteriors]

    def parts(self, takes: BoolArray | None = None) -> dict[str, list[Array]]:
        return {}

    def between(self, own: int, other: dict[str, Array], block: Array) -> Array:
        return np.asarray(np.einsum("rt,rt->t", self.blocks[own], block))

    def covariances(self, sent: Mapping[str, Sequence[Array]], blocks: Sequence[Array]) -> Array:
        vectors = np.stack(blocks).transpose(2, 0, 1)
        return np.asarray(vectors @ vectors.swapaxes(1, 2))


def common_basis(inputs: Sequence[Array], h: Hyperparameters, reduction: Reduction) -> Basis | None:
    """The basis on the box of the whole fleet, the same at every agent; None if it would be too long."""
    scales = np.asarray(h.length_scales)
    step = STEP * scales
    nothing = np.full(2 * len(scales), -np.inf)  # of an agent without rows
    corners = np.stack(
        [
            np.concatenate([np.ceil(x.max(axis=0) / step), np.ceil(-x.min(axis=0) / step)]) if len(x) else nothing
            for x in inputs
        ]
    )
    high, low = np.split(reduction.maximum(corners), 2)
    box = Box.around(np.stack([high * step, -low * step]))
    reach = box.half / scales
    # An axis has about FEWEST + 7.5 h functions; the products of small ones are dropped, half of them and more.
    if np.prod(FEWEST + 7.5 * reach) > 2.0 * LONGEST:
        return None
    basis = Basis(h, box, tuple(degree_for(float(r), EXPANSION) for r in reach), DROP)
    # Machines that differ in the last bit of an exponential may differ in the rank, or in the sign of a function.
    probe = basis.at((box.centre + PROBE * box.half)[None])[0] @ (1.0 / (1.0 + np.arange(basis.rank)))
    sign = np.array([float(basis.rank), probe / h.signal])
    highest, lowest = np.split(reduction.maximum(np.tile(np.concatenate([sign, -sign]), (len(inputs), 1))), 2)
    same = bool((np.abs(highest + lowest) < SAME).all())
    return basis if same and basis.rank <= LONGEST else None
