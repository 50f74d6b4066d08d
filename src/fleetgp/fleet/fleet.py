"""Fleet: the front door. Agents with their data, a graph between them, training and prediction."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, Unpack

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.consensus.agreements import MeanName, check_mean
from fleetgp.data.dataset import Dataset, InMemory
from fleetgp.data.partition import FOLDS, By
from fleetgp.data.suspicions import Inspection
from fleetgp.data.times import TimeUnit
from fleetgp.data.transforms import AS_GIVEN, CoordinatesName, Scaling, coordinate_rule, seen_by
from fleetgp.declarations import given_in, takes
from fleetgp.engines.base import translate_theta_errors
from fleetgp.engines.expert import ENGINES
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.errors import FleetGPWarning, InputError, WorkerLostError, shortened, warn
from fleetgp.files import ResumableCache
from fleetgp.fleet.backends import Backend, BackendName, chosen_backend
from fleetgp.fleet.conditioned import ConditionedFleet
from fleetgp.fleet.cross_validation import (
    CrossValidation,
    Fold,
    Hidden,
    Split,
    by_name,
    deal,
    run_folds,
    training_for_folds,
)
from fleetgp.fleet.files import (
    MEMORY,
    ROWS,
    ModelKeywords,
    Splitting,
    read_files,
    rows_of_dataset,
    rows_of_frame,
)
from fleetgp.fleet.maps import N_AGENTS, Mask, check_names, chosen_cells, grid_of, map_dataset, on_all_cells
from fleetgp.fleet.privacy import PrivateRows, check_private_rows, predictor_of, refuse_private, refuse_queries
from fleetgp.fleet.queries import AgentName, check_agent, with_numbers
from fleetgp.fleet.scoring import Truth, own_places, trivial_of
from fleetgp.fleet.shards import (
    AGENTS,
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
from fleetgp.fleet.snapshot import ModelSnapshot, held_by
from fleetgp.fleet.training import of_sample, training_options
from fleetgp.graph import as_topology
from fleetgp.graph.topology import relayed
from fleetgp.io.formats import Reading
from fleetgp.io.survey import passes_told_to
from fleetgp.io.tables import ColumnRoles, Missing, ObservationTable
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.expression import Kernels, as_kernels
from fleetgp.kernels.stationary import OBSERVED, Kernel
from fleetgp.metrics import LEVEL, Scores
from fleetgp.metrics.scores import half_width
from fleetgp.network import InProcess
from fleetgp.options import (
    CalibrateKeywords,
    FoldKeywords,
    ModelOptions,
    PosteriorKeywords,
    PredictionOptions,
    PredictKeywords,
    SampleKeywords,
    ThetaOptions,
    TrainerOptions,
    TrainKeywords,
    default_kernel,
)
from fleetgp.prediction import Calibration, Gradient, Holding, Joint, Prediction, PredictionCache, Suggestion
from fleetgp.prediction.registry import refuse_foreign
from fleetgp.prediction.suggestion import Candidates, candidate_lists, check_criterion
from fleetgp.progress import Listener, Progress, listening
from fleetgp.training import Fit, Trainer, TrainingMethod, training_method
from fleetgp.training.problem import prepare
from fleetgp.training.reporting import TrainingProgress, warn_of_end
from fleetgp.validation import as_flag, as_names, check_whole


class Fleet:
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
    coordinates: of the inputs, "as-given"; "scaled" by their own deviations, with length-scales in their units;
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

    target: str = "y"
    dropped: int = 0  # rows of a file, data frame or dataset that could not be used
    notes: tuple[str, ...] = ()  # what else was done to the values

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
        backend: BackendName | Backend = "in-process",
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
        self.kernel_given = kernel is not None  # else the default one
        self.kernels = self._as_seen(default_kernel() if kernel is None else kernel)
        self._kernel = self.kernels[0] if len(self.kernels) == 1 else None
        if self._kernel is None and theta is not None:
            raise InputError("theta belongs to one kernel: expected its name, got several to choose from by training")
        self.graph = as_topology(graph, len(seen), seed=seed, places=places_of(seen, self.coordinates))
        self.seed = seed
        self.private: PrivateRows | None = check_private_rows(private, self.data.counts)
        self.theta: Array | None = None if theta is None else check_theta_of(self.data, theta, self.names)
        self._backend = chosen_backend(backend, self.data, self.graph, workers, address)
        self.units: Mapping[str, str] = {}  # of inputs and target, by name, where they are known
        self._labels: tuple[str, ...] = ()
        self.last_fit: Fit | None = None
        self._trained: Dataset | None = None  # the data that the fit is from
        self._watched: dict[int, Inspection] = {}  # what was seen of the rows of agents that have got more
        self._conditioned: ConditionedFleet | None = None
        self._cache = PredictionCache()  # posteriors and agreements, to which new rows are added
        self._calibration: Calibration | None = None
        self.unfinished: Progress | None = None  # the interrupted training that theta is from, if it is
        warn_of_shards(seen, self.inputs, self.coordinates)
        if self.theta is not None and self.mean == "zero" and not self.normalize:
            sigmas = self.theta[np.array(self.kernel.units(self.dimension)) == OBSERVED]
            warn_of_offset(seen, float(sigmas.max()))

    # ---- from files, data frames and datasets -----------------------------------------------------------------------

    @classmethod
    def from_files(
        cls,
        files: str | Path | Sequence[str | Path],
        graph: object = "path",
        *,
        inputs: Sequence[str],
        target: str,
        agent: str | None = None,
        deviation: str | None = None,
        missing: Missing = "refuse",
        fill: Sequence[float] | None = None,
        reading: Reading | None = None,
        sample: int | None = None,
        memory: float = MEMORY,
        rows: int = ROWS,
        cache: str | Path | None = None,
        seed: int = 0,
        progress: bool | Listener = False,
        **model: Unpack[ModelKeywords],
    ) -> Self:
        """A fleet whose data are in files, which may be larger than memory: CSV, Parquet, NetCDF and Zarr.

        dec-full-gp and full-gp read the files in chunks: they were read once for the fleet's box, and are read again
        for moments, and for those on a finer grid if need be. Every other method loads all rows when it first needs
        them, up to a limit.

        files: a pattern ("data/*.parquet"), a path, or a list of them.
        inputs, target, agent: columns. Without agent, every file is an agent's; `fleet.data.names` has their names.
            Those of NetCDF and Zarr are coordinates and variables. Times become days since 1970. sst, lon and lat are
            also what other names stand for, as in `fleetgp.io.load_sst`; a temperature in kelvin stays so, unless
            `reading` has celsius=True. `fleet.data.notes` has what was done.
        deviation: the column of the known standard deviations of the target.
        missing, fill, reading: as in `fleetgp.io.read_observations`. With date, box and stride only a part of NetCDF
            and Zarr fields is read: all times of that day, longitudes from -180 to 180 with a box. Cells that hold
            nothing are no rows. `fleet.data.dropped` and `fleet.data.empty` count what was left out.
        sample: methods that need rows get so many of each agent's, drawn at random by the seed: `last_fit.held` has how
            many there are. dec-full-gp and full-gp still take all of them.
        memory: bytes of observations that may be loaded, 1 GB.
        rows: at most so many are read at once, for each core. Memory is then some 50 MB a core, and some 0.5 MB for
            each agent's moments, besides libraries and the training itself, whatever the size of the files.
        cache: a folder for what is known of each file. A second call reads only files that are new or have
            changed: also where the first one ended with an error, or was interrupted.
        graph, model: as of a `Fleet`. Noise that differs needs the rows: dec-full-gp, and "ray", have one noise for
            all. With "ray" its workers read the files: each is an agent's, under the same path on all machines, for
            dec-full-gp and full-gp.
        progress: as of `Fleet.train`, for the first pass over the files.
        """
        given = given_in(model, ModelKeywords, "from_files")
        if given.get("backend") == "ray" and (deviation is not None or "noise" in given or given.get("robust", False)):
            raise InputError(
                "deviation, noise and robust need rows, and a cluster knows files by sums over them: leave them out, "
                "or compute in this process"
            )
        where = {name: given[name] for name in ("backend", "workers", "address") if name in given}
        data = read_files(
            files,
            inputs=inputs,
            target=target,
            agent=agent,
            deviation=deviation,
            missing=missing,
            fill=fill,
            reading=reading,
            sample=sample,
            memory=memory,
            rows=rows,
            cache=cache,
            seed=seed,
            progress=progress,
            **where,
        )
        if isinstance(given.get("noise"), str) and given["noise"] == AGENTS:
            given["noise"] = data.names
        fleet = cls(data, graph, seed=seed, inputs=inputs, **given)
        return fleet.set_metadata(data.names, target, data.units, data.dropped, data.notes)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        graph: object = "path",
        *,
        inputs: Sequence[str],
        target: str,
        agent: str | None = None,
        agents: int | None = None,
        by: By | None = None,
        axis: str | None = None,
        deviation: str | None = None,
        units: Mapping[str, str] | None = None,
        missing: Missing = "refuse",
        fill: Sequence[float] | None = None,
        time_unit: TimeUnit = "days",
        seed: int = 0,
        **model: Unpack[ModelKeywords],
    ) -> Self:
        """A fleet from the columns of a data frame (pandas).

        inputs, target: columns, or levels of the index. Inputs may be times, or dates as text: they are counted in
            `time_unit` ("days", "hours" or "seconds") since 1970, `fleet.units` says so, and queries may have times,
            too.
        agent: the column that names the agent of each row: `fleet.labels` has their names. Without it `agents` says
            over how many to split (1), `by` and `axis` how ("stripes" along an input's name; see `partition`).
        deviation: the column of the known standard deviations of the target.
        units: of columns, {"sst": "°C"}, for maps and figures.
        missing: rows with missing or infinite values are an error, or with "drop" left out: `fleet.dropped` counts
            them.
        fill: values that stand for nothing, [-9999]; without it one that looks like it is an error, [] says that all
            are real.
        graph, seed, model: as of a `Fleet`. With noise="agents" every sigma_eps has its agent's name.

        >>> import pandas as pd
        >>> from fleetgp import Fleet
        >>> days = pd.to_datetime(["2021-01-01", "2021-01-02", "2021-01-03"])
        >>> table = pd.DataFrame({"day": days, "t": [3.0, 4.0, None]})
        >>> fleet = Fleet.from_frame(table.assign(boat=["Ada", "Bo", "Bo"]), inputs=["day"], target="t", agent="boat",
        ...                          missing="drop", theta=[1.0, 1.0, 0.1])
        >>> fleet.labels, fleet.units, fleet.dropped
        (('Ada', 'Bo'), {'day': 'days since 1970-01-01'}, 1)
        """
        given = given_in(model, ModelKeywords, "from_frame")
        columns = ColumnRoles(inputs, target, agent, deviation)
        rows = rows_of_frame(frame, columns, units, missing, fill, Reading(time_unit=time_unit))
        return cls._of_rows(rows, columns, graph, Splitting(agents, by, axis, seed), given)

    @classmethod
    def from_dataset(
        cls,
        data: Any,
        graph: object = "path",
        *,
        inputs: Sequence[str] | None = None,
        target: str | None = None,
        agent: str | None = None,
        agents: int | None = None,
        by: By | None = None,
        axis: str | None = None,
        deviation: str | None = None,
        date: str | None = None,
        box: Sequence[float] | None = None,
        stride: int | None = None,
        at: Mapping[str, float | str] | None = None,
        celsius: bool = False,
        missing: Missing = "refuse",
        fill: Sequence[float] | None = None,
        time_unit: TimeUnit = "days",
        seed: int = 0,
        **model: Unpack[ModelKeywords],
    ) -> Self:
        """A fleet from an xarray DataArray, or from a variable of a Dataset: an observation for each cell with a value.

        target: the variable; of a DataArray its name, and of a Dataset with one variable that one.
        inputs: coordinates, or variables over the target's axes. Without them the coordinates of its axes with more
            than one chosen cell, the last axis first: lon, lat, time. Times are as in `from_frame`.
        date, box, stride: a day, west, south, east and north in degrees, and every so many-th row and column of a map.
        at: one value of other axes, {"depth": 5, "time": "2021-01-05"}: the nearest cell, within half a cell.
            Cells that hold nothing are no observations; `fleet.notes` tells how many, and what was chosen.
        celsius: convert a target in kelvin to degrees Celsius. Without it the values stay as they are; `fleet.units`
            has their unit.
        agent, agents, by, axis, deviation, missing, fill, time_unit, seed, graph, model: as in `from_frame`.

        >>> import xarray as xr
        >>> from fleetgp import Fleet
        >>> sst = xr.DataArray([[14.0, 15.0], [np.nan, 16.0]], {"lat": [40.0, 41.0], "lon": [1.0, 2.0]}, ("lat", "lon"),
        ...                    name="sst", attrs={"units": "degC"})
        >>> fleet = Fleet.from_dataset(sst, theta=[1.0, 1.0, 1.0, 0.1], normalize=True)
        >>> fleet.inputs, fleet.shards[0][1].tolist(), fleet.units["sst"]
        (('lon', 'lat'), [14.0, 15.0, 16.0], 'degC')
        """
        given = given_in(model, ModelKeywords, "from_dataset")
        reading = Reading(date=date, box=box, stride=stride, at=at, time_unit=time_unit, celsius=celsius)
        rows, columns = rows_of_dataset(data, inputs, target, agent, deviation, missing, fill, reading)
        return cls._of_rows(rows, columns, graph, Splitting(agents, by, axis, seed), given)

    @classmethod
    def _of_rows(
        cls, rows: ObservationTable, columns: ColumnRoles, graph: object, splitting: Splitting, model: dict[str, Any]
    ) -> Self:
        names, shards = splitting.split(rows, columns.inputs)
        if isinstance(model.get("noise"), str) and model["noise"] == AGENTS:
            model["noise"] = names
        fleet = cls(shards, graph, inputs=columns.inputs, seed=splitting.seed, **model)
        return fleet.set_metadata(names, columns.targets[0], rows.units, rows.dropped, rows.notes)

    # ---- what it is -------------------------------------------------------------------------------------------------

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
    def labels(self) -> tuple[str, ...]:
        """The agents' names: as the data have them, or their numbers."""
        return self._labels or self.data.names or tuple(str(agent) for agent in range(self.agents))

    @property
    def has_names(self) -> bool:
        """Whether the data gave names to agents and target."""
        return bool(self._labels)

    def set_metadata(
        self,
        labels: Sequence[str],
        target: str,
        units: Mapping[str, str],
        dropped: int | None = None,
        notes: tuple[str, ...] | None = None,
    ) -> Self:
        """Give the names that the data have, and what was done to them; None leaves that as it is. The fleet itself.

        labels: of the agents.  target, units: of what is observed, and of inputs and target by name. An input with the
            unit "days since 1970-01-01" (or hours, or seconds) is a time: data frames may have it as times.
        dropped: how many rows of the source could not be used.  notes: what else was done to its values.

        >>> from fleetgp import Fleet
        >>> fleet = Fleet([([[0.0], [1.0]], [15.0, 16.0])], theta=[1.0, 10.0, 0.1])
        >>> fleet.set_metadata(["Ada"], "sst", {"sst": "degC"}).labels, fleet.target, fleet.units
        (('Ada',), 'sst', {'sst': 'degC'})
        """
        names = as_names(labels, "labels")
        if len(names) != self.agents:
            raise InputError(f"labels: expected a name for each of the {self.agents} agents, got {len(names)}")
        if not isinstance(target, str):
            raise InputError(f"target: expected a name, got {shortened(target)}")
        if not isinstance(units, Mapping):
            raise InputError(f'units: expected units by name, {{"sst": "degC"}}, got {shortened(units)}')
        self._labels, self.target = names, target
        if self.last_fit is not None:
            self.last_fit.ledger.labels = names
        self.units = {name: unit for name, unit in units.items() if unit}
        self.dropped = self.dropped if dropped is None else dropped
        self.notes = self.notes if notes is None else notes
        return self

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
    def kernel(self) -> Kernel:
        """The one that there is; an error before one was chosen of several."""
        if self._kernel is None:
            raise InputError("the fleet has yet to choose its kernel: call train first")
        return self._kernel

    @kernel.setter
    def kernel(self, kernel: str | Kernel | Sequence[str | Kernel]) -> None:
        kernels, self.kernel_given = self._as_seen(kernel), True
        self._kernel = kernels[0] if len(kernels) == 1 else None
        if not isinstance(kernel, str | Kernel) or not all(one in self.kernels for one in kernels):
            self.kernels = kernels

    @property
    def first_kernel(self) -> Kernel:
        """The one that there is, or the first of those to choose from."""
        return self._kernel or self.kernels[0]

    def kernel_called(self, name: str) -> Kernel:
        """The one of this name among those that it has or chooses from, or the first.

        >>> from fleetgp import Fleet
        >>> Fleet([([[0.0], [1.0]], [1.0, 2.0])], kernel=["se", "matern32"]).kernel_called("matern32").name
        'matern32'
        """
        return next((kernel for kernel in self.kernels if kernel.name == name), self.first_kernel)

    def _as_seen(self, kernel: object) -> Kernels:
        """Kernels as a caller gives them, in the coordinates of the model and with its noise."""
        inputs = self.inputs or self.dimension
        seen = seen_by(self.coordinates, as_kernels(kernel, inputs), inputs, self.mean)
        return tuple(with_noise(one, self.noise_model) for one in seen)

    @property
    def moments(self) -> FleetMoments | None:
        """Of all data as they are, if the training has left them at every agent; None if rows came later."""
        unchanged = self._trained is not None and self.data.same(self._trained)
        return self.last_fit.moments if self.last_fit is not None and unchanged else None

    @property
    def earlier_moments(self) -> tuple[FleetMoments, tuple[int, ...]] | None:
        """The moments to which those of newer rows will be added, and how many rows of each agent they are of.

        Those of the last answer of dec-full-gp, where it came from this process, else those of the training.
        """
        if self.last_fit is None or self.theta is None or not self.data.in_memory:
            return None
        snapshot, last = self.snapshot(), self._conditioned
        if snapshot.moments is None:
            return None
        latest = last.last_moments if last is not None and snapshot.grown_from(last.snapshot) else None
        return latest or (snapshot.moments, snapshot.trained)

    @property
    def calibration(self) -> Calibration | None:
        """Of the data and theta as they are; None if there is none, or either has changed."""
        known, theta = self._calibration, self.theta
        return known if known is not None and theta is not None and np.array_equal(known.theta, theta) else None

    @calibration.setter
    def calibration(self, calibration: Calibration | None) -> None:
        self._calibration = calibration

    def snapshot(self, theta: Sequence[float] | Array | None = None) -> ModelSnapshot:
        """What predictions are from, as it is now: data and model, which nothing changes any more.

        theta: hyperparameters in the place of the fleet's own.

        >>> from fleetgp import Fleet
        >>> Fleet([([[0.0], [1.0]], [1.0, 2.0])], theta=[1, 1, 0.1]).snapshot().theta.tolist()
        [1.0, 1.0, 0.1]
        """
        fit, trained = self.last_fit, self._trained
        if theta is not None:
            model = check_theta_of(self.data, theta, self.names)
        elif self.theta is None:
            why = "call train first" if fit is None else f"{fit.method} diverged, train in another way"
            raise InputError(f"the fleet has no hyperparameters yet: {why}, or give theta")
        elif fit is None or fit.status == "diverged" or not np.array_equal(self.theta, fit.theta):
            model = check_theta_of(self.data, self.theta, self.names)  # as it was set
        else:
            model = fit.thetas if fit.moments is None else fit.thetas[0]  # with moments comes an agreed theta
        to_agree = self.normalize or self.mean != "zero"
        moved = self.coordinates.name != "as-given"
        grown = fit is not None and trained is not None and self.data.added_since(trained) is not None
        return ModelSnapshot(
            shards=self.data,
            inputs=self.inputs,
            graph=self.graph,
            kernel=self.kernel,
            theta=model,
            scaling=fit.scaling if fit is not None else None if to_agree else Scaling(),
            seed=self.seed,
            rows=tuple(self.data.counts),
            moments=fit.moments if fit is not None and grown else None,
            trained=() if trained is None else tuple(trained.counts),
            mean=self.mean,
            normalize=self.normalize,
            coordinates=fit.coordinates if fit is not None else None if moved else AS_GIVEN,
            rule=self.coordinates,
            central=fit is not None and not training_method(fit.method).decentralized,
            held=held_by(self.data, fit),
            units=self.units,
            target=self.target,
            labels=self.labels,
            private=self.private,
        )

    def __repr__(self) -> str:
        points = sum(self.data.counts)
        return f"Fleet(agents={self.agents}, points={points}, dimension={self.dimension}, graph={self.graph!r})"

    # ---- its workers ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the workers of a fleet on a cluster; the next training or prediction starts others.

        >>> from fleetgp import Fleet
        >>> with Fleet([([[0.0], [1.0]], [1.0, 2.0])], theta=[1, 1, 0.1]) as fleet:
        ...     mean = fleet.predict([[0.5]], "full-gp").mean
        >>> fleet.close()  # which `with` has done already
        """
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- training ---------------------------------------------------------------------------------------------------

    @takes(TrainKeywords, TrainerOptions, ThetaOptions)
    def train(
        self,
        method: str = "dec-fact-gp",
        *,
        preset: Literal["paper"] | None = None,
        progress: bool | Listener = False,
        **options: Unpack[TrainKeywords],
    ) -> Fit:
        """Agree on the hyperparameters; the result stays on the fleet as `last_fit` and, unless it diverged, `theta`.

        An interrupted training (Ctrl-C) leaves its estimates as `theta` to a fleet that has none or only such ones, and
        itself as `unfinished`; `last_fit` is of finished trainings only.

        preset: "paper" for the paper's settings where you give no other: rho=500, kappa and lipschitz 5,000, nested
            gradient descent, no noise floor, 100 rounds of the decentralized methods and tol=1e-3 of the others. A
            fleet whose kernel was not chosen takes the paper's, "se", and warns. The paper does not normalize: give
            normalize=False to the fleet.
        progress: True for a bar on the terminal, or a callable that gets a `Progress`.
        {options}

        An option that the method does not have is an InputError, which names the methods that have it. A training warns
        if it diverged, reached its round limit (`NotConvergedWarning`), ended at a bound, or ended where the likelihood
        is flat: `flat` of the result has the hyperparameters.
        """
        row = training_method(method)
        refuse_private(row, self.private, rows=min(self.data.counts))
        self._take_default_kernel(row, preset)
        chosen = training_options(
            row,
            given_in(options, TrainKeywords, "train"),
            self._trained_as,
            {self.target: self.data},
            self.kernels,
            self.names,
            preset,
        )
        with listening(progress) as listener, passes_told_to(listener):
            reporter = TrainingProgress(method, chosen, listener)
            try:
                reporter.begun()
                with translate_theta_errors(names=self.names):
                    fit = self._backend.train(row, self.data, InProcess(self.graph), self.kernels, chosen, reporter)
            except (KeyboardInterrupt, WorkerLostError) as interrupt:
                interrupt.add_note(self.keep_unfinished(reporter.furthest))
                raise
            fit = self.adopt(of_sample(fit, self.data, self.last_fit))
            reporter.ended(fit)
        warn_of_end(fit, chosen, self.names)
        return fit

    def trainer(self, method: str = "dec-fact-gp", **options: Unpack[TrainKeywords]) -> Trainer:
        """A training that you step yourself, round by round; the fleet's `last_fit` and `theta` stay as they are.

        options: those of `train` but for rounds, seconds and lipschitz, which no step has.
        full-gp, fact-gp and g-fact-gp have no single steps.
        """
        row = training_method(method)
        refuse_private(row, self.private, rows=min(self.data.counts))
        given = given_in(options, TrainKeywords, "trainer")
        row.check_stepwise([name for name in given if name in TrainerOptions.__annotations__])
        self._backend.check_here("trainer")
        if self.coordinates.name != "as-given":
            raise InputError(f'trainer: expected coordinates="as-given", got "{self.coordinates.name}": use train')
        if self.robust:
            raise InputError("trainer: expected a fleet without robust, whose trainings go in turns: use train")
        observed = {self.target: self.data}
        chosen = training_options(row, given, self._trained_as, observed, self.kernels, self.names)
        return Trainer(prepare(row, self.data, InProcess(self.graph), self.kernel, chosen), chosen)

    @property
    def _trained_as(self) -> dict[str, Any]:
        """What a training needs to know of the model."""
        return {
            "seed": self.seed,
            "normalize": self.normalize,
            "mean": self.mean,
            "coordinates": self.coordinates,
        }

    def _take_default_kernel(self, method: TrainingMethod, preset: str | None) -> None:
        """Take the kernel that the method needs, if none was chosen and no theta depends on it."""
        needed = default_kernel(method.name, preset=preset)
        if self.kernel_given or self.theta is not None or needed == self.kernel.name:
            return
        who = method.name if default_kernel(method.name) == needed else f'preset="{preset}"'
        warn(
            f'no kernel was chosen, and {who} needs kernel="{needed}" instead of the default '
            f'"{self.kernel.name}": the fleet has the kernel "{needed}" now. Give kernel="{needed}" to the fleet'
        )
        self.kernel = needed

    def adopt(self, fit: Fit) -> Fit:
        """Take over a training that was of the fleet's data, as they are now; the fit, with names."""
        kernel = self.kernel_called(fit.kernel)
        if fit.status != "diverged":
            self.theta, self.unfinished, self._kernel = fit.theta, None, kernel
        fit.ledger.labels = self.labels
        self.last_fit = replace(fit, names=kernel.names(self.inputs or self.dimension))
        self._trained, self.calibration = self.data, None
        return self.last_fit

    def trained_on(self, rows: Sequence[int]) -> None:
        """The moments of the fit are of so many rows of each agent, the first ones."""
        if len(rows) != self.agents or any(not 0 <= n <= len(own) for n, own in zip(rows, self.data, strict=True)):
            raise ValueError(f"moments: expected a number of rows for each of {self.agents} agents, got {list(rows)}")
        pairs = zip(self.data, rows, strict=True)
        self._trained = InMemory(own if n == len(own) else own.rows(slice(n)) for own, n in pairs)

    def keep_unfinished(self, furthest: Progress | None) -> str:
        """Keep the estimates of an interrupted training, unless the fleet has better ones; say which it was."""
        if furthest is None or furthest.thetas is None:
            return "the training was interrupted before its first round: the fleet is as it was"
        interrupted = f"the training was interrupted after {furthest.round} rounds of {furthest.task}"
        if self.theta is not None and self.unfinished is None:
            return f"{interrupted}: the fleet keeps the theta that it had"
        if len(self.kernels) > 1:
            return f"{interrupted}: the fleet is as it was, since estimates are of no use without their kernel"
        self.last_fit, self.unfinished = None, furthest
        self.theta = np.exp(np.log(furthest.thetas).mean(axis=0))
        return f"{interrupted}: fleet.theta holds its estimates; train(theta0=fleet.theta) goes on from them"

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

    # ---- prediction -------------------------------------------------------------------------------------------------

    def condition(
        self, theta: Sequence[float] | Array | None = None, *, engine: str = "auto", n_neighbours: int | None = None
    ) -> ConditionedFleet:
        """The fleet at one theta: an object with every agent's posterior, whose `predict` answers query after query.

        It stays as it is when the fleet is trained again or gets another theta. See `predict` for theta, engine
        and n_neighbours.

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(120, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
        >>> conditioned = fleet.condition()
        >>> first, second = (conditioned.predict([[0.5, 0.5]], "dec-nn-grbcm") for _ in range(2))
        >>> bool(first.mean == second.mean), first.ledger.bytes > second.ledger.bytes
        (True, True)
        """
        calibration = self.calibration if theta is None else None
        return ConditionedFleet(
            self.snapshot(theta), engine, n_neighbours, backend=self._backend, calibration=calibration
        )

    def _conditioned_for(self, method: str | None, options: dict[str, Any]) -> tuple[ConditionedFleet, dict[str, Any]]:
        """The fleet conditioned as a method needs it, as before unless something has changed; the options left for it.

        options: those that were given.
        """
        row, rest = predictor_of(self.private, method), dict(options)
        theta, engine = rest.pop("theta", None), rest.pop("engine", "auto")
        ENGINES.check(engine)
        refuse_foreign(row, rest if isinstance(engine, str) and engine == "auto" else {"engine": engine, **rest})
        n_neighbours = rest.pop("n_neighbours", None)
        snapshot = self.snapshot(theta)
        if self._conditioned is None or not self._conditioned.same(snapshot, engine, n_neighbours):
            self._conditioned = ConditionedFleet(snapshot, engine, n_neighbours, self._cache, self._backend)
        self._conditioned.calibration = self.calibration if theta is None else None
        return self._conditioned, rest

    @takes(PredictKeywords, PredictionOptions, ThetaOptions)
    def predict(
        self,
        queries: Any,
        method: str | None = None,
        *,
        observed: bool = False,
        agent: AgentName | None = None,
        **options: Unpack[PredictKeywords],
    ) -> Prediction:
        """Mean and variance at the queries (T, D), by any of `PREDICTION_METHODS`; every agent gets the answer.

        method: dec-nn-grbcm without one, which shares a sample of N_i/M rows of every agent with all agents;
            dec-nn-rbcm, which sends no row, if the fleet was made with private="rows".
        queries: an array with the inputs in their order, or a data frame that has them among its columns. Inputs that
            are times (`units`) may be times there. Or an xarray Dataset or DataArray with the inputs as coordinates:
            all cells, and `to_dataset` of the result has their grid.
        observed: whether `variance` is of an observation or of f; `std` is of f and `std_observed` of an observation
            in any case, and `interval(0.95)` has its ends.
        agent: who asks: `mean` and `variance` are its answer, and along the tree no other agent receives it. Without
            it every agent gets the answer: `means` and `variances` have them all.
        {options}

        An option that the method does not have is refused.
        The fleet stays conditioned (see `condition`) until its data, theta or another engine need new posteriors: the
        next prediction is faster, and sends less, since nothing that was agreed on before is sent again.
        Where the answer is no better than the prior (`prior_only` of the result), a FleetGPWarning says so.
        """
        conditioned, rest = self._conditioned_for(method, given_in(options, PredictKeywords, "predict"))
        return conditioned.predict(queries, method, observed=observed, agent=agent, **rest)

    @takes(PosteriorKeywords, PredictionOptions, ThetaOptions)
    def joint(
        self,
        queries: Any,
        method: str | None = None,
        *,
        observed: bool = False,
        agent: AgentName | None = None,
        **options: Unpack[PosteriorKeywords],
    ) -> Joint:
        """Mean (T,) and covariance (T, T) of f at the queries (T, D) together, by any method of `predict` but NPAE.

        full-gp, dec-full-gp: the exact joint posterior; dec-full-gp in no round. With one agent every method is it.
        dec-nearest: the exact one of all observations that are among the nearest to any of the queries; at most 5,000.
        PoE, gPoE, BCM, rBCM, grBCM: the committee's rule, applied to the whole vector of queries at once. At most 500
        queries: the agents add up T(T+3)/2 + 1 numbers along the tree (T = 100: 41 kB up and down each edge).

        Where queries are correlated, the variances of a joint committee differ from those of `predict`. A committee
        assumes that the agents' data are independent given f at the queries, which is nearly true of many queries
        (Tresp, 2000) and not of one: more queries among the data make the answer better. Calibration factors are in the
        covariance. Where it is close to singular, a committee adds 1e-9 of the prior variance: see `jitter`.

        observed: the covariance of observations instead of f, with the noise of the agent that asks on its diagonal.
        agent: who asks, by its number or its name: along the tree no other agent receives the answer.
        {options}

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(120, seed=1)
        >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
        >>> fleet = Fleet(shards, theta=theta, kernel="se")
        >>> found = fleet.joint([[0.5, 0.5], [0.5, 0.6], [1.5, 0.2]], "dec-rbcm")
        >>> found.covariance.shape, found.rounds, found.sample(5, seed=1).shape
        ((3, 3), 4, (5, 3))
        """
        conditioned, rest = self._conditioned_for(method, given_in(options, PosteriorKeywords, "joint"))
        return conditioned.joint(queries, method, observed=observed, agent=agent, **rest)

    @takes(SampleKeywords, PredictionOptions, ThetaOptions)
    def sample(
        self,
        queries: Any,
        n: int = 1,
        method: str | None = None,
        *,
        seed: int = 0,
        observed: bool = False,
        agent: AgentName | None = None,
        **options: Unpack[SampleKeywords],
    ) -> Array:
        """Draws (n, T) from the joint posterior of f at the queries (T, D), the same for the same seed.

        seed: of the draws.  observed, agent: as in `joint`.
        {options}

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(120, seed=1)
        >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
        >>> fleet = Fleet(shards, theta=theta, kernel="se")
        >>> fleet.sample([[0.5, 0.5], [0.5, 0.6]], n=3, method="dec-full-gp", seed=7).shape
        (3, 2)
        """
        conditioned, rest = self._conditioned_for(method, given_in(options, SampleKeywords, "sample"))
        return conditioned.joint(queries, method, observed=observed, agent=agent, **rest).sample(n, seed)

    @takes(PosteriorKeywords, PredictionOptions, ThetaOptions)
    def gradient(
        self,
        queries: Any,
        method: str | None = None,
        *,
        agent: AgentName | None = None,
        **options: Unpack[PosteriorKeywords],
    ) -> Gradient:
        """The gradient (T, D) of the mean at the queries (T, D), in units of the data per unit of each input as given.

        It is the gradient of the mean that `predict` returns by the same method, with the same agents and observations
        taking part; where these change, `predict` has small steps, which no gradient shows. Far from all data it is the
        slope of the mean function. By full-gp, dec-full-gp and dec-nearest, and of one agent alone, `std` and
        `covariance` say how well the gradient of f is known. With matern12 f has none: see `kinks`. The agents add up
        (D + 1) times the numbers of a prediction. NPAE, and averages (consensus="average"), have no gradient.

        agent: who asks, by its number or its name: along the tree no other agent receives the answer.
        {options}

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(120, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
        >>> slope = fleet.gradient([[0.5, 0.5]], "dec-rbcm").gradient
        >>> ahead, behind = fleet.predict([[0.5, 0.5 + 1e-6], [0.5, 0.5 - 1e-6]], "dec-rbcm").mean
        >>> bool(abs(slope[0, 1] - (ahead - behind) / 2e-6) < 1e-4)
        True
        """
        conditioned, rest = self._conditioned_for(method, given_in(options, PosteriorKeywords, "gradient"))
        return conditioned.gradient(queries, method, agent=agent, **rest)

    @takes(PosteriorKeywords, PredictionOptions, ThetaOptions)
    def suggest(
        self,
        agent: AgentName | None,
        candidates: Any,
        n: int = 1,
        *,
        criterion: str = "variance",
        method: str | None = None,
        **options: Unpack[PosteriorKeywords],
    ) -> Suggestion:
        """The n candidates at which it is most worth to measure next, each given that those before it are measured.

        agent: for whom; no other agent receives the answer. None: n places for every agent, no place twice, from the
            same candidates or, with a list of M arrays, from each agent's own. All agents have the same joint posterior
            and make the same assignment: nothing more is sent. The best place goes first; where several agents may go
            there, it is the turn of another one each time.
        candidates: (C, D) places. Copies count once.
        criterion: "variance", where the fleet knows least; "mutual-information", where an observation tells most about
            the other candidates (Krause, Singh, Guestrin 2008): seldom first at the edge of them.
        method: of the joint posterior, as in `joint`, which also says how many candidates there may be: 500 in all by a
            committee.
        {options}

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(120, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
        >>> places = np.stack(np.meshgrid(np.linspace(0, 2, 6), np.linspace(0, 2, 6)), -1).reshape(-1, 2)
        >>> found = fleet.suggest(0, places, n=3, criterion="mutual-information")
        >>> found.places.shape, bool((np.diff(found.gains) < 0).any())
        ((3, 2), True)
        >>> fleet.suggest(None, places, n=2).agents.tolist()
        [0, 1, 2, 3, 1, 2, 3, 0]
        """
        check_whole("n", n, least=1)
        check_criterion(criterion)
        number = None if agent is None else check_agent(agent, self.labels)
        conditioned, rest = self._conditioned_for(method, given_in(options, PosteriorKeywords, "suggest"))
        lists = [conditioned.checked(one) for one in candidate_lists(candidates, number, self.agents)]
        places = Candidates.of(lists, number, self.agents)
        joint = conditioned.known_jointly(places.places, method, agent=number, **rest)
        chosen = places.chosen(joint, criterion, int(n))
        points, name = conditioned.snapshot.points(chosen[0]), predictor_of(self.private, method).name
        return Suggestion(*chosen, criterion, name, joint.ledger, points, self.labels)

    @takes(CalibrateKeywords, PredictionOptions)
    def calibrate(
        self,
        method: str | None = None,
        *,
        holdout: str = "both",
        level: float = 0.95,
        cells: int | None = None,
        max_rows: int = 300,
        seed: int | None = None,
        **options: Unpack[CalibrateKeywords],
    ) -> Calibration:
        """Find the factor on the standard deviations with which intervals of this method cover what they promise.

        Agents hide rows of theirs, five times another fifth (twenty times another twentieth where they have fewer than
        100 rows on average); the fleet predicts them from the rest, with the present theta, and adds up how far off the
        predictions are. The result stays on the fleet as `calibration`: `predict` by this method with the same eta and
        n_neighbours multiplies the standard deviations of observations and of f by its `factor`. Predictions by other
        methods are as they were, and warn. A training, new observations or another theta end it.

        holdout: "rows" are hidden at random: the factor is for places among the data. "blocks" hides whole cells of the
            fleet's box, the same for all agents, so that nobody observes them: the factor is for gaps. With "both"
            there are two factors, and a query gets one between them according to its deviation.
        level: the coverage that intervals shall have.
        cells: how many cells the box has for blocks; 16 for each agent, and at least 100. Choose them as large as the
            gaps that you will ask about.
        max_rows: how many rows an agent holds out at most, of each kind. Their inputs are sent to all agents, unless
            the fleet has private="rows". Then the fleet is asked about 1,000 places all over its box instead, and every
            agent carries the answers over to its own hidden rows. Factors are then equal or up to some 10% larger.
        seed: draws what is hidden, and the samples of grBCM; without it the fleet's.
        {options}

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(400, seed=1)
        >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
        >>> fleet = Fleet(shards, theta=theta, kernel="se")
        >>> found = fleet.calibrate("dec-poe", holdout="rows")
        >>> knot = found.knots[0]
        >>> knot.rows, knot.before < 0.95, knot.factor > 1.0
        (400, True, True)
        >>> bool(fleet.predict([[0.5, 0.5]], "dec-poe").factor[0] == knot.factor)
        True
        """
        row, given = predictor_of(self.private, method), given_in(options, CalibrateKeywords, "calibrate")
        engine = given.pop("engine", "auto")
        ENGINES.check(engine)
        refuse_foreign(row, given if engine == "auto" else {"engine": engine, **given})
        refuse_private(row, self.private, self.kernel, engine, min(self.data.counts) // FOLDS)
        if self.private is not None and self.coordinates.name == "sphere":
            raise InputError(
                'calibrate: private="rows" needs a box in which all agents know places, and there is none on the '
                'sphere: use coordinates="kilometres", or a fleet without private'
            )
        chosen = self.seed if seed is None else seed
        holding = Holding(holdout, level, cells, max_rows, chosen, apart=self.private is not None)
        how = PredictionOptions(seed=chosen).changed({"engine": engine, **given})
        source = replace(self.snapshot(), moments=None, trained=())  # of all rows, also of those that are held out
        calibration = self._backend.calibrate(source, row, how, holding)
        if calibration.ledger is not None:
            calibration.ledger.labels = self.labels
        self.calibration = replace(calibration, theta=np.array(self.theta))
        return self.calibration

    def map(
        self,
        grid: Sequence[int] = (200, 200),
        *,
        box: Sequence[float] | None = None,
        at: Mapping[str, Any] | None = None,
        within: float = 0.5,
        mask: Mask = None,
        method: str | None = None,
        observed: bool = False,
        agent: AgentName | None = None,
        **options: Unpack[PredictKeywords],
    ) -> Any:
        """Mean and deviations on a grid over two inputs: an xarray Dataset with coordinates and units.

        Its variables are called after the target: sst (the mean), sst_std (the standard deviation of f),
        sst_std_observed (that of an observation); n_agents (how many took part) and cell_status (what the data say of a
        cell: 0 known, 1 no better than the prior, 2 left out, 3 masked). Cells that are left out or masked are NaN.

        grid: how many points along the two inputs.
        box: the lowest first and second input, then the highest; without it where the data are.
        at: a value for each other input, {"day": 5}; a date where an input is a time.
        within: cells farther than so many length-scales from all observations are left out; inf takes all of them.
        mask: where the map shall be: a function of points (T, D), an array over the second and the first input, or a
            DataArray over both, whose nearest cell counts. 0, False and NaN leave a cell out, as does what is outside.
        method, observed, agent, options: as of `predict`.

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(120, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
        >>> sea = fleet.map((5, 4), mask=lambda points: points[:, 0] > 0.6)
        >>> dict(sea["y"].sizes), int((sea["cell_status"] == 3).sum())
        ({'x2': 4, 'x1': 5}, 8)
        """
        source = self.snapshot(options.get("theta"))
        layout = grid_of(source, grid, box, at)
        check_names(layout, self.target)
        cells = layout.cells
        chosen, status = chosen_cells(source, layout, within, mask)
        answer = self.predict(cells[chosen], method, observed=observed, agent=agent, **options)
        columns = {
            "mean": answer.mean,
            "std": answer.std,
            "std_observed": answer.std_observed,
            N_AGENTS: np.asarray(answer.participants.sum(axis=0)),
        }
        facts = {"method": answer.method, "status": answer.status, "asked_agent": self.labels[answer.asked]}
        return map_dataset(source, layout, columns, on_all_cells(status, chosen, answer.prior_only), chosen, facts)

    # ---- how good it is ---------------------------------------------------------------------------------------------

    def score(
        self,
        X: Any,
        y: Any = None,
        method: str | None = None,
        *,
        s: Any = None,
        agent: AgentName | None = None,
        level: float = LEVEL,
        **options: Unpack[PredictKeywords],
    ) -> Scores:
        """All scores of the fleet's predictions of observations that it has not seen (`Scores`).

        X, y: (T, D) and (T,), an array or a data frame with the inputs, times as in `predict`. Or X alone, as a list of
            (X_i, y_i) or (X_i, y_i, s_i), one for each agent: then `rows_of` of the result has the scores of each one's
            own rows. A fleet with private="rows" refuses this, and inputs of its own rows: they would be queries, which
            all agents see.
        s: (T,) known standard deviations of these observations, if they have such: they come on top of sigma_eps.
        method, options: as in `predict`, whose variance is that of an observation here.
        agent: who asks; without it every agent gets the answer, and `answers` of the result has the scores of each.
        level: of the intervals.

        The MSLL is against the mean and the variance of the fleet's own observations.

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(400, seed=1)
        >>> fleet = Fleet(partition(field.inputs[:300], field.observations[:300], agents=4), theta=[1.2, 0.3, 1.3, 0.1])
        >>> found = fleet.score(field.inputs[300:], field.observations[300:])
        >>> found.rows, found.rmse < 0.2, found.msll < -1.0, len(found.answers)
        (100, True, True, 4)
        """
        given_in(options, PredictKeywords, "score")
        instead = "Score observations that may be known to all by score(X, y), or use calibrate, which reports coverage"
        if y is None:
            refuse_queries(self.private, "score with agents' own rows", instead)
        truth = Truth.of(X, y, s, self.agents, self.inputs, self.units)
        if self.private is not None and (count := own_places(self.data, truth.inputs)):
            refuse_queries(self.private, f"score with {count:,} of the agents' own rows", instead)
        answer = self.predict(truth.inputs, method, observed=True, agent=agent, **options)
        return truth.scores(answer, trivial_of(self.data), level, self.labels, one_asks=agent is not None)

    def cross_validate(
        self,
        folds: int | None = None,
        split: Split = "random",
        method: str | None = None,
        *,
        train: bool | Mapping[str, Any] = True,
        cells: int | None = None,
        level: float = LEVEL,
        seed: int | None = None,
        progress: bool | Listener = False,
        kept: ResumableCache | None = None,
        **options: Unpack[FoldKeywords],
    ) -> CrossValidation:
        """How well the fleet predicts observations that it does not see: every row is hidden once, with others.

        folds: how many times rows are hidden; 5, or with split="agent" once for each agent.
        split: what is hidden together. "random": rows of every agent, which tells how good predictions are among the
            data. "agent": all rows of an agent. "block": whole cells of the fleet's box, the same for all agents, so
            that nobody observes them: it tells how good predictions are in gaps. An agent with no other rows still
            relays.
        method, options: as in `predict`. Each agent's rows are judged by its own answer; those of an agent without
            other rows by that of the first agent with the same noise.
        train: True trains again for every fold, as the fleet was trained (by `last_fit.method`, with its bounds and
            priors, from its theta if it has one); a dictionary has other options of `Fleet.train`. False predicts with
            the present theta, which knows the hidden rows a little, and takes a fraction of the time.
        cells: with split="block", how many cells the box has; 16 for each agent, and at least 100.
        level: of the intervals.  seed: draws what is hidden; without it the fleet's.
        progress: True for a bar on the terminal, or a callable that gets a `Progress`.
        kept: where finished folds are kept, so that an interrupted call goes on.

        A fleet with private="rows" refuses: the inputs of hidden rows are queries, which all agents see. The fleet
        stays as it is, and its calibration is not used: it is of all rows. Rows in files are loaded.

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(200, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
        >>> found = fleet.cross_validate(split="random", method="dec-rbcm", train=False)
        >>> len(found.folds), found.scores.rows, found.means[0].shape == fleet.shards[0][1].shape
        (5, 200, True)
        >>> gaps = fleet.cross_validate(split="block", method="dec-rbcm", train=False)
        >>> gaps.scores.rmse > found.scores.rmse
        True
        """
        refuse_queries(self.private, "cross_validate", "Use `calibrate`, which reports coverage")
        name = predictor_of(self.private, method).name
        half_width(level)
        chosen = self.seed if seed is None else seed
        check_whole("seed", chosen, least=0)
        given = given_in(options, FoldKeywords, "cross_validate")
        if kept is not None and not isinstance(kept, ResumableCache):
            raise InputError(
                f"kept: expected a ResumableCache, as fleetgp.files.ResumableCache(folder, {{}}), got {shortened(kept)}"
            )
        self._backend.check_here("cross_validate")
        training = training_for_folds(train, self.last_fit, self.names)
        if training is None and self.theta is None:
            raise InputError("cross_validate: the fleet has no hyperparameters yet: give train=True, or train it first")
        data = InMemory(self.data.load())
        fold_of, count = deal(data, split, folds, cells, chosen, self.coordinates.longitude)

        def fold(number: int) -> Fold:
            return self._fold(data, fold_of, number, name, training, given)

        results = run_folds(fold, count, split, progress, kept)
        truths = [own.values for own in data]
        return CrossValidation.of(split, name, results, fold_of, truths, level, self.labels)

    def _fold(
        self,
        data: InMemory,
        fold_of: Sequence[IntArray],
        number: int,
        method: str,
        training: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> Fold:
        """Hide a fold of the rows, and have a fleet of all others predict it. training: None for the present theta."""
        groups = own_groups(self.noise, self.agents, self.noise_model)
        noises = [self.noise_model.groups[group] for group in groups] if self.noise_model.groups else []
        hidden = Hidden.of(data, fold_of, number, noises)
        kernel: Any = self.kernel.name if training is None else [one.name for one in self.kernels]
        settings = self.settings | {"kernel": kernel, "noise": hidden.noise}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FleetGPWarning)  # of the data: it was said when the fleet was made
            rest = type(self)(hidden.shards, relayed(self.graph, hidden.members), **settings)
        status, rounds, sent = "given", 0, 0
        if training is None:
            assert self.theta is not None, "it was checked"
            rest.theta = np.array(by_name(self.theta, self.names, rest.names))
        else:
            again = dict(training)
            if "theta0" not in again and self.theta is not None and len(rest.kernels) == 1:
                again["theta0"] = by_name(self.theta, self.names, rest.names)
            fit = rest.train(**again)
            if fit.status == "diverged":
                raise InputError(
                    f"cross_validate: {fit.method} diverged without the rows of a fold: train in another way"
                )
            status, rounds, sent = fit.status, fit.ledger.rounds, fit.ledger.bytes
        queries = np.concatenate([own.inputs for own in hidden.rows])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FleetGPWarning)  # of gaps: they are what is asked about, and counted
            answer = rest.predict(queries, method, observed=True, **options)
        assert rest.theta is not None, "it was trained, or given"
        return hidden.fold(
            answer,
            trivial=trivial_of(rest.data),
            theta=dict(zip(rest.names, rest.theta.tolist(), strict=True)),
            training=status,
            rounds=rounds + answer.ledger.rounds,
            bytes=sent + answer.ledger.bytes,
        )
