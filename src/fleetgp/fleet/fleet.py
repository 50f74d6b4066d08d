"""Fleet: the front door. Agents with their data, a graph between them, training and prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.agreements import MeanName, check_mean
from fleetgp.data.dataset import Dataset, InMemory
from fleetgp.data.suspicions import Watched
from fleetgp.data.transforms import CoordinatesName, coordinate_rule
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.fleet.answering import calibrate
from fleetgp.fleet.backends import BackendName, Closing, chosen_backend
from fleetgp.fleet.choosing import Choosing
from fleetgp.fleet.conditioned import ConditionedFleet
from fleetgp.fleet.cross_validation import cross_validate
from fleetgp.fleet.files import from_dataset, from_files, from_frame
from fleetgp.fleet.learning import train, trainer
from fleetgp.fleet.maps import map_
from fleetgp.fleet.named import AgentName, Named, check_agent, with_numbers
from fleetgp.fleet.predicting import condition, gradient, joint, predict, sample, suggest
from fleetgp.fleet.privacy import PrivateRows, check_private_rows
from fleetgp.fleet.scoring import score_fleet
from fleetgp.fleet.shards import (
    NoiseName,
    check_shards,
    check_theta_of,
    noise_model_of,
    observed_more,
    own_groups,
    places_of,
    warn_of_offset,
    warn_of_shards,
)
from fleetgp.graph import as_topology
from fleetgp.kernels.stationary import OBSERVED, Kernel
from fleetgp.options import ModelOptions
from fleetgp.prediction import Calibration, Conditioner
from fleetgp.progress import Progress
from fleetgp.training import Fit
from fleetgp.validation import as_flag, check_whole


class Fleet(Closing, Choosing, Named):
    """M agents, each with its own data, linked by a graph.

    shards: a list of (X_i, y_i), one per agent; sizes may differ. Or of (X_i, y_i, s_i), with the known standard
        deviation of each observation's own noise: it is s_n^2 + sigma_eps^2.
    graph: "places" (agents are neighbours where their data are: the Gabriel graph of the centres), "path", "cycle",
        "star", "grid", "complete", "geometric", a Graph, a networkx graph, an adjacency matrix, or a list of any of
        them, which repeats over the rounds (time-varying).
    theta: fixed hyperparameters in natural units (l_1 .. l_D, sigma_f, sigma_eps), instead of training.
    normalize: centre and scale the observations by the fleet's own mean and standard deviation, agreed by
        consensus. The paper does not: give False for results that compare with it.
    mean: the mean function, "zero" (the paper's), "constant" or "linear" in the inputs, by generalized least squares:
        `last_fit.mean`. Its own uncertainty is not in the variances of predictions.
    coordinates: of the inputs, "as-given"; "scaled" by their own deviations, with length-scales told in their units;
        "kilometres" for inputs called lon and lat (or longitude, latitude), with length-scales in kilometres, on a
        plane about their centre; "sphere" for such inputs anywhere on the globe, with a kernel that has one
        length-scale for both: "iso-matern32(lon, lat)".
    kernel: "matern32" (the default), "matern12", "matern52", "rq", "se" (the paper's), or an expression over
        the inputs' names (or numbers): "matern32(lon, lat) * matern12(day) + linear(lon)". `names` has those of its
        hyperparameters. "auto", or a list: the best of these, by how well each predicts blocks of rows that the agents
        hide from it, chosen by `train` (`compared` of its result).
        If no kernel is given, `train("dec-full-gp")`, which needs "se", takes "se" and warns.
    noise: None, one sigma_eps for all; "agents", one for each, sigma_eps_0 and so on; or a list with a name for that of
        each agent: those of the same name share it. An agent's prediction with observed=True has its own, and no s_n.
    robust: weigh outliers down, so that a stuck sensor does not spoil the noise: an observation counts as one that is
        2.5 deviations off at most, by what the agent's others say of it (`last_fit.outliers` counts them).
    private: "rows" refuses whatever would send a row, the inputs of a row, or statistics over so few rows that they
        determine them; the error names what to use instead. Predictions are then by dec-nn-rbcm unless you name
        another method, and `calibrate` asks about points that are nobody's inputs. docs/privacy.md says what it
        guards against, and what it does not.
    inputs: the inputs' names; without them those of the columns, where the X_i are data frames.
    backend: "in-process", or "ray": groups of agents at the workers of a Ray cluster. workers: how many (one a core).
        address: of the cluster to join; without it the one that is running, or a local one is started. `close` ends the
        workers and what was started, and so does `with`. The answers are those of "in-process".

    All data are copied. Data frames are taken by the names of their columns, not by their order: those of other agents
    must have the columns of agent 0's, and queries may have more.

    >>> from fleetgp import partition, synthetic_field
    >>> field = synthetic_field(240, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), graph="path")
    >>> fit = fleet.train("dec-apx-gp", theta0=[2, 0.5, 1, 1])
    >>> fit.status, fit.thetas.shape, fit.disagreement < 1e-3
    ('converged', (4, 4), True)
    >>> fit.ledger.kinds
    ('hyperparameters', 'statistics', 'stopping')
    >>> out = fleet.predict(field.inputs[:3], "dec-rbcm")
    >>> out.mean.shape, out.means.shape, bool((out.variance > 0).all()), out.status
    ((3,), (4, 3), True, 'converged')
    >>> trainer = fleet.trainer("dec-apx-gp", theta0=[2, 0.5, 1, 1])  # the same rounds, one by one
    >>> state, info = trainer.step(trainer.start())

    From files, each an agent's, which may be larger than memory:

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, first in (("ada", 0), ("bo", 5)):
    ...         rows = [f"{x / 10},{(x % 3) / 10},{x % 4}" for x in range(first, first + 9)]
    ...         written = Path(folder, f"{name}.csv").write_text("\\n".join(["lon,lat,sst", *rows]))
    ...     fleet = Fleet.from_files(f"{folder}/*.csv", inputs=["lon", "lat"], target="sst")
    >>> fleet.data.names, fleet.dimension
    (('ada', 'bo'), 2)
    """

    def __init__(
        self,
        shards: Sequence[tuple[Any, ...]] | Dataset,
        graph: object = "path",
        *,
        theta: Sequence[float] | Array | None = None,
        normalize: bool = ModelOptions.normalize,
        mean: MeanName = ModelOptions.mean,
        coordinates: CoordinatesName = ModelOptions.coordinates,
        kernel: str | Kernel | Sequence[str | Kernel] | None = None,
        noise: NoiseName = None,
        robust: bool = False,
        private: PrivateRows | None = None,
        seed: int = 0,
        inputs: Sequence[str] | None = None,
        backend: BackendName = "in-process",
        workers: int | None = None,
        address: str | None = None,
    ) -> None:
        check_whole("seed", seed, least=0)
        seen, self.inputs = check_shards(shards, inputs)
        self.noise, self.robust = noise, as_flag(robust, "robust")
        self.noise_model = noise_model_of(noise, len(seen), known=seen.known_noise, robust=self.robust)
        self.data = seen.observed(self.noise_model, own_groups(noise, len(seen), self.noise_model))
        self.normalize = as_flag(normalize, "normalize")
        self.mean, self.coordinates = check_mean(mean), coordinate_rule(coordinates, self.inputs)
        self.choose_from(kernel, self.inputs or self.dimension, theta, self.coordinates, self.mean)
        self.graph = as_topology(graph, len(seen), seed=seed, places=places_of(seen, self.coordinates))
        self.seed = seed
        self.private: PrivateRows | None = check_private_rows(private, self.data.counts)
        self.theta: Array | None = None if theta is None else check_theta_of(self.data, theta, self.names)
        super().__init__(chosen_backend(backend, self.data, self.graph, workers, address))
        self.last_fit: Fit | None = None
        self.units = {}
        self._trained: Dataset | None = None  # the data that the fit is from
        self._watched: dict[int, Watched] = {}  # what was seen of the rows of agents that have got more
        self._conditioned: ConditionedFleet | None = None
        self._conditioner = Conditioner()  # gives new observations to the posteriors that there are
        self.calibration: Calibration | None = None  # of the data and theta as they are
        self.unfinished: Progress | None = None  # the interrupted training that theta is from, if it is
        warn_of_shards(seen, self.inputs, self.coordinates)
        if self.theta is not None and self.mean == "zero" and not self.normalize:
            sigmas = self.theta[np.array(self.kernel.units(self.dimension)) == OBSERVED]
            warn_of_offset(seen, float(sigmas.max()))

    from_files = classmethod(from_files)
    from_frame, from_dataset = classmethod(from_frame), classmethod(from_dataset)
    train, trainer = train, trainer
    predict, condition = predict, condition
    calibrate = calibrate
    map = map_
    score, cross_validate = score_fleet, cross_validate
    joint, sample, gradient, suggest = joint, sample, gradient, suggest

    @property
    def agents(self) -> int:
        """M, how many there are."""
        return len(self.data)

    @property
    def dimension(self) -> int:
        """D, how many inputs there are."""
        return self.data.dimension

    @property
    def shards(self) -> tuple[tuple[Any, ...], ...]:
        """The agents' data as they were given, (X_i, y_i) or (X_i, y_i, s_i); data in files are loaded."""
        return tuple(own.as_given for own in self.data)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hyperparameters, in the order of theta; those of the first kernel before one is chosen."""
        return self.first_kernel.names(self.inputs or self.dimension)

    @property
    def settings(self) -> dict[str, Any]:
        """What it was made with, but for data, graph and where its agents are: `Fleet(others, graph, **settings)`."""
        return {
            "normalize": self.normalize,
            "mean": self.mean,
            "coordinates": self.coordinates.name,
            "kernel": [kernel.name for kernel in self.kernels] if self.kernel_given else None,
            "noise": self.noise,
            "robust": self.robust,
            "private": self.private,
            "seed": self.seed,
            "inputs": self.inputs,
        }

    @property
    def moments(self) -> FleetMoments | None:
        """Of all data as they are, if the training has left them at every agent; None if rows came later."""
        unchanged = self._trained is not None and self.data.same(self._trained)
        return self.last_fit.moments if self.last_fit is not None and unchanged else None

    def observed(self) -> list[tuple[str, Dataset]]:
        """What is observed, by name, and the agents' rows of it."""
        return [(self.target, self.data)]

    def trained_on(self, rows: Sequence[int]) -> None:
        """The moments of the fit are of so many rows of each agent, the first ones."""
        if len(rows) != self.agents or any(not 0 <= n <= len(own) for n, own in zip(rows, self.data, strict=True)):
            raise ValueError(f"moments: expected a number of rows for each of {self.agents} agents, got {list(rows)}")
        pairs = zip(self.data, rows, strict=True)
        self._trained = InMemory(own if n == len(own) else own.rows(slice(n)) for own, n in pairs)

    def adopt(self, fit: Fit) -> Fit:
        """Take over a training that was of the fleet's data, as they are now; the fit, with names."""
        if fit.status != "diverged":
            self.theta, self.unfinished = fit.theta, None
            self.chosen(fit.kernel)
        names = self.kernel_called(fit.kernel).names(self.inputs or self.dimension)
        fit.ledger.labels = self.labels
        self.last_fit, self._trained, self.calibration = replace(fit, names=names), self.data, None
        return self.last_fit

    def observe(self, agent: AgentName, X: Any, y: Any, s: Any = None) -> None:
        """More observations of one agent; theta stays. Predictions are then as if they had been there from the start.

        agent: its number or, as everywhere, its name in `labels`.
        s: their known deviations, if the fleet's data have such.

        Only what is new is computed, with the next prediction: a dense posterior grows by N^2 operations a row, moments
        get those of the new rows, as long as these lie in the box of the old ones, and no other agent's posterior is
        touched, unless a new row is drawn into the samples that all agents hold (grBCM; one in M is). In whatever order
        rows come, the answers are those of a fleet that had them all; with normalize, mean or coordinates, and a theta
        that was given, what these follow from changes with every row, and all is computed anew: train once before.

        >>> from fleetgp import partition, synthetic_field
        >>> field = synthetic_field(120, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
        >>> fleet.observe(2, [[1.1, 0.4], [1.2, 0.4]], [0.3, 0.5])
        >>> [len(own) for own in fleet.data]
        [30, 30, 32, 30]
        """
        number = check_agent(agent, self.labels)
        rows, self._watched[number] = observed_more(
            self.data,
            number,
            (with_numbers(X, self.units), y, s),
            self.noise_model,
            self.inputs,
            self._watched.get(number),
        )
        self.data, self.calibration = self.data.grown(number, rows), None

    def __repr__(self) -> str:
        points = sum(self.data.counts)
        return f"Fleet(agents={self.agents}, points={points}, dimension={self.dimension}, graph={self.graph!r})"
