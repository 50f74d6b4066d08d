"""Several outputs of one fleet that share their length-scales, for example temperature and salinity of boats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Self, Unpack

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.agreements import MeanName
from fleetgp.data.dataset import InMemory
from fleetgp.data.transforms import CoordinatesName, coordinate_rule
from fleetgp.declarations import given_in
from fleetgp.errors import InputError, shortened
from fleetgp.fleet.backends import BackendName, chosen_backend
from fleetgp.fleet.fleet import Fleet
from fleetgp.fleet.privacy import PrivateRows, refuse_private
from fleetgp.fleet.queries import AgentName
from fleetgp.fleet.shards import NoiseName, check_shards, places_of, split_deviations
from fleetgp.fleet.training import reported, training_options
from fleetgp.graph import as_topology
from fleetgp.kernels.stationary import Kernel
from fleetgp.model.observations import Observations
from fleetgp.options import ModelOptions, PredictKeywords, TrainKeywords
from fleetgp.prediction import Prediction
from fleetgp.progress import Listener, Progress
from fleetgp.training import Fit, training_method
from fleetgp.training.multi_output import Sharing, refuse_moments
from fleetgp.training.reporting import warn_of_end
from fleetgp.validation import as_names, as_numbers, by_name, check_aligned, check_finite, column_names


class Outputs:
    """Independent outputs with the same kernel, each with a sigma_f (of every term) and a noise of its own.

    shards: a list of (X_i, Y_i), one per agent, with a column of Y_i for each target, NaN where a target was not
        observed. Or of (X_i, Y_i, S_i) with known standard deviations of the observations, in the same columns.
    targets: the names of the outputs; by default those of the columns, where the Y_i are data frames.

    Everything else is as for a `Fleet`, with one kernel. `fleets` has an ordinary fleet for each target, to condition,
    calibrate, map and save.

    >>> import fleetgp as fg
    >>> field = fg.synthetic_field(120, seed=1)
    >>> both = np.column_stack([field.observations, 35.0 - 0.1 * field.observations])
    >>> sea = Outputs([(field.inputs[i::3], both[i::3]) for i in range(3)], targets=["t", "s"], normalize=True)
    >>> fits = sea.train("dec-fact-gp")
    >>> bool((fits["t"].theta[:2] == fits["s"].theta[:2]).all()), sea.names
    (True, ('l_1', 'l_2', 't.sigma_f', 't.sigma_eps', 's.sigma_f', 's.sigma_eps'))
    >>> sea.predict([[0.5, 0.5]])["s"].mean.round().tolist()
    [35.0]
    >>> sea.close()  # which ends the workers of a cluster
    """

    def __init__(
        self,
        shards: Sequence[tuple[Any, ...]],
        graph: object = "path",
        *,
        targets: Sequence[str] | None = None,
        normalize: bool = ModelOptions.normalize,
        mean: MeanName = ModelOptions.mean,
        coordinates: CoordinatesName = ModelOptions.coordinates,
        kernel: str | Kernel | None = None,
        noise: NoiseName = None,
        robust: bool = False,
        private: PrivateRows | None = None,
        seed: int = 0,
        inputs: Sequence[str] | None = None,
        time: str | None = None,
        backend: BackendName = "in-process",
        workers: int | None = None,
        address: str | None = None,
    ) -> None:
        if not isinstance(kernel, str | Kernel | None) or kernel == "auto":
            raise InputError(f"kernel: expected one for all outputs, got {shortened(kernel)}: choose one")
        by_target, names = check_outputs(shards, targets, inputs)
        every = InMemory(Observations.joined(own) for own in zip(*by_target.values(), strict=True))
        rule = coordinate_rule(coordinates, names)
        self.graph = as_topology(graph, len(every), seed=seed, places=places_of(every, rule))
        self._backend = chosen_backend(backend, every, self.graph, workers, address)
        model: dict[str, Any] = {"normalize": normalize, "mean": mean, "coordinates": coordinates, "kernel": kernel}
        model |= {"seed": seed, "inputs": names, "private": private, "backend": self._backend}
        model |= {"noise": noise, "robust": robust, "time": time}
        self.fleets = {
            target: Fleet([one.as_given for one in own], self.graph, **model) for target, own in by_target.items()
        }

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return tuple(self.fleets)

    @property
    def _first(self) -> Fleet:
        return next(iter(self.fleets.values()))

    @property
    def sharing(self) -> Sharing:
        """Which hyperparameters are shared, and which belong to one output."""
        return Sharing.of(self._first.kernel, self._first.dimension, len(self.fleets))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hyperparameters: those that are shared, then each target's own."""
        return self.sharing.names(self._first.names, self.targets)

    def train(
        self,
        method: str = "dec-fact-gp",
        *,
        preset: Literal["paper"] | None = None,
        progress: bool | Listener = False,
        **options: Unpack[TrainKeywords],
    ) -> dict[str, Fit]:
        """Learn the hyperparameters of all outputs; return a result for each, which its fleet takes over.

        preset, progress, options: those of `Fleet.train`, with theta0, bounds, priors and fixed of `names`. "signal"
            and "noise" stand for those of all outputs. dec-full-gp trains one output at a time, and is refused.

        Ledger, jitter and likelihoods of the starts are those of all outputs together. A prior on a shared
        hyperparameter is in the penalty of each output, and counts once.
        """
        row, first = training_method(method), self._first
        refuse_moments(row)
        refuse_private(row, first.private, rows=min(first.data.counts))
        data = {target: fleet.data for target, fleet in self.fleets.items()}
        model: dict[str, Any] = {name: getattr(first, name) for name in ("seed", "normalize", "mean", "coordinates")}
        given = given_in(options, TrainKeywords, "train")
        chosen = training_options(row, given, model, data, first.kernels, self.names, preset)
        with reported(progress, method, chosen, first.names, self._keep_unfinished) as reporter:
            results = self._backend.train(
                row, list(data.values()), self.graph, first.kernels, chosen, reporter, together=True
            )
            reporter.ended(results[0])
        fits = {target: fleet.adopt(fit) for (target, fleet), fit in zip(self.fleets.items(), results, strict=True)}
        for target, fit in fits.items():
            warn_of_end(fit, chosen, fit.names, f"{target}: ")
        return fits

    def predict(
        self,
        queries: Any,
        method: str | None = None,
        *,
        observed: bool = False,
        agent: AgentName | None = None,
        **options: Unpack[PredictKeywords],
    ) -> dict[str, Prediction]:
        """Predict every output at the queries. observed, agent, options: those of `Fleet.predict`."""
        how: dict[str, Any] = {"observed": observed, "agent": agent, **options}
        return {target: fleet.predict(queries, method, **how) for target, fleet in self.fleets.items()}

    def close(self) -> None:
        """End the workers of a cluster; the next training or prediction starts new ones."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep_unfinished(self, furthest: Progress | None) -> str:
        """Keep the estimates of an interrupted training in every fleet, as `Fleet.keep_unfinished` does."""
        note = ""
        for k, fleet in enumerate(self.fleets.values()):
            own = furthest
            if furthest is not None and furthest.thetas is not None:
                own = replace(furthest, thetas=furthest.thetas[:, self.sharing.places(k)])
            note = fleet.keep_unfinished(own)
        return note

    def __repr__(self) -> str:
        return f"Outputs({', '.join(f'{target}={fleet!r}' for target, fleet in self.fleets.items())})"


def check_outputs(
    shards: Sequence[tuple[Any, ...]], targets: Sequence[str] | None, inputs: Sequence[str] | None
) -> tuple[dict[str, list[Observations]], tuple[str, ...] | None]:
    """Return every target's data, and the inputs' names; errors name the agent."""
    if not isinstance(shards, Sequence) or not len(shards):
        raise InputError("shards must be a list of (X_i, Y_i), one per agent, with at least one agent")
    pairs, deviations = split_deviations(shards)
    observed: list[Array] = []
    for agent, shard in enumerate(pairs):
        if not isinstance(shard, list | tuple) or len(shard) != 2:
            raise InputError(f"agent {agent}: expected a pair (X, Y), got {type(shard).__name__}")
        check_aligned(shard[0], shard[1], f"agent {agent}: ", ("X", "Y"))
        if targets is None:
            targets = column_names(shard[1], f"agent {agent}: Y")
        targets = as_names(() if targets is None else targets, "targets")
        observed.append(_columns(shard[1], f"agent {agent}: Y", targets))
    given = [(x, np.zeros(len(y))) for (x, _), y in zip(pairs, observed, strict=True)]
    checked, names = check_shards(given, inputs)
    known = [_known(s, agent, targets or (), observed[agent]) for agent, s in enumerate(deviations or ())]
    by_target: dict[str, list[Observations]] = {target: [] for target in targets or ()}
    for agent, (own, y) in enumerate(zip(checked, observed, strict=True)):
        for column, (target, values) in enumerate(zip(by_target, y.T, strict=True)):
            rows = ~np.isnan(values)
            if not rows.any():
                raise InputError(
                    f"agent {agent} has no observation of {target}: expected at least one of each target from every "
                    "agent: leave the agent or the target out, or make a fleet for each target"
                )
            noise_std = known[agent][rows, column] if known else None
            by_target[target].append(Observations(own.inputs[rows], values[rows], noise_std))
    return by_target, names


def _columns(given: Any, what: str, targets: Sequence[str]) -> Array:
    """Return one column for each target, NaN where it was not observed."""
    if not targets:
        raise InputError('targets: expected the names of the columns of Y, got none: give targets=["temperature", ..]')
    if column_names(given, what) is not None:
        given = by_name(given, targets, what)
    values = as_numbers(given, what)
    if values.ndim != 2 or values.shape[1] != len(targets):
        agent, _, name = what.partition(": ")
        raise InputError(
            f"{agent}: expected {name} of shape (N, {len(targets)}), a column for each of {', '.join(targets)}, got "
            f"the shape {values.shape}"
        )
    check_finite(np.where(np.isnan(values), 0.0, values), what)
    return values


def _known(given: Any, agent: int, targets: Sequence[str], observed: Array) -> Array:
    """Return the known standard deviations of an agent's observations, (N, K)."""
    check_aligned(given, observed, f"agent {agent}: ", ("S", "Y"))
    values = _columns(given, f"agent {agent}: S", targets)
    if values.shape != observed.shape:
        raise InputError(f"agent {agent}: S: expected a standard deviation for each of {len(observed)} rows of Y")
    for target, own, seen in zip(targets, values.T, observed.T, strict=True):
        rows = np.flatnonzero(~np.isnan(seen) & ~(own >= 0.0))
        if len(rows):
            raise InputError(
                f"agent {agent}: S: expected standard deviations of at least 0 wherever {target} was observed, got "
                f"{own[rows[0]]:g} (first: row {rows[0]})"
            )
    return values
