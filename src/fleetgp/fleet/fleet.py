"""Fleet, where a user begins: agents with their data, a graph between them, training and prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, Unpack

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.agreements import FEWEST_ROWS, MeanName, check_mean
from fleetgp.data.dataset import Dataset, InMemory
from fleetgp.data.partition import FOLDS, By
from fleetgp.data.suspicions import Inspection
from fleetgp.data.times import TimeUnit, duration, moment, time_input
from fleetgp.data.transforms import (
    AS_GIVEN,
    CoordinatesName,
    Scaling,
    coordinate_rule,
    kernels_in_coordinates,
    names_of,
)
from fleetgp.declarations import as_text, checked, given_in, takes
from fleetgp.engines.expert import ENGINES
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.errors import InputError, shortened, warn
from fleetgp.files import ResumableCache
from fleetgp.fleet.backends import Backend, BackendName, chosen_backend
from fleetgp.fleet.conditioned import ConditionedFleet
from fleetgp.fleet.cross_validation import CrossValidation, Split, cross_validate
from fleetgp.fleet.files import (
    MEMORY,
    ROWS,
    ModelKeywords,
    read_files,
    rows_of_dataset,
    rows_of_frame,
    split_rows,
)
from fleetgp.fleet.forgetting import (
    Departure,
    Limit,
    Removal,
    Requests,
    forgotten,
    needed,
    removed,
    renumbered,
    select,
    summarized,
)
from fleetgp.fleet.maps import N_AGENTS, Mask, check_names, chosen_cells, grid_of, map_dataset, on_all_cells
from fleetgp.fleet.privacy import (
    PrivateRows,
    check_private_rows,
    predictor_of,
    refuse_private,
    refuse_queries,
    refuse_small_groups,
)
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
from fleetgp.fleet.snapshot import ModelSnapshot, held_by, newest
from fleetgp.fleet.training import note_sample, reported, training_need, training_options
from fleetgp.graph import as_topology
from fleetgp.io.file_dataset import FileDataset
from fleetgp.io.formats import Columns, Reading
from fleetgp.io.tables import Missing, ObservationTable
from fleetgp.kernels.composite import with_noise
from fleetgp.kernels.expression import Kernels, as_kernels
from fleetgp.kernels.stationary import OBSERVED, Kernel
from fleetgp.metrics import LEVEL, Scores
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.network import InProcess
from fleetgp.options import (
    CalibrateKeywords,
    FoldKeywords,
    Keep,
    MemoryOptions,
    ModelOptions,
    PosteriorKeywords,
    PredictionOptions,
    PredictKeywords,
    QueryOptions,
    SampleKeywords,
    ScoreKeywords,
    ThetaOptions,
    TrainerOptions,
    TrainKeywords,
    default_kernel,
)
from fleetgp.prediction import Calibration, Gradient, Holding, Joint, Prediction, PredictionCache, Suggestion
from fleetgp.prediction.conditioned import SentGroups
from fleetgp.prediction.groups import groups_within
from fleetgp.prediction.kept import KeptGroups
from fleetgp.prediction.methods import SharedState
from fleetgp.prediction.registry import refuse_foreign
from fleetgp.prediction.suggestion import Candidates, candidate_lists, check_criterion
from fleetgp.progress import Listener, Progress
from fleetgp.training import Fit, Trainer, TrainingMethod, TrainingNeed, training_method
from fleetgp.training.problem import prepare
from fleetgp.training.reporting import warn_of_end
from fleetgp.validation import as_flag, as_names, check_whole

#: Options of a question that are no settings of its method, and their defaults.
BESIDE: tuple[tuple[str, Any], ...] = (("theta", None), ("engine", "auto"), ("at_time", None))


class Fleet:
    """M agents, each with its own data, linked by a graph.

    shards: a list of (X_i, y_i), one per agent; sizes may differ. Or of (X_i, y_i, s_i) with known standard deviations
        of the observations: the variance of an observation's noise is then s_n^2 + sigma_eps^2.
    graph: "places" (the Gabriel graph of the agents' centres), "path", "cycle", "star", "grid", "complete",
        "geometric", a Graph, a networkx graph, an adjacency matrix, or a list of these, which repeats over the rounds
        (time-varying).
    theta: fixed hyperparameters in natural units (l_1 .. l_D, sigma_f, sigma_eps), instead of training.
    normalize: centre and scale the observations by the fleet's mean and standard deviation, which the agents agree on
        by consensus. The paper does not: give False for results to compare with it.
    mean: the mean function, "zero" (the paper's), "constant" or "linear" in the inputs, by generalized least squares:
        `last_fit.mean`. Predictive variances do not include its uncertainty.
    coordinates: "as-given"; "scaled" by the inputs' standard deviations, with length-scales in the inputs' units;
        "kilometres" for inputs called lon and lat (or longitude, latitude) on a plane about their centre, with
        length-scales in kilometres; "sphere" for such inputs anywhere on the globe, with a kernel that has one
        length-scale for both: "iso-matern32(lon, lat)".
    kernel: "matern32" (the default; see time), "matern12", "matern52", "rq", "se" (the paper's), or an expression over
        the names (or numbers) of inputs: "matern32(lon, lat) * matern12(day) + linear(lon)". `names` lists its
        hyperparameters. With "auto" or a list, `train` chooses the kernel that best predicts blocks of rows hidden from
        it: see `compared` of its result. If no kernel is given, `train("dec-full-gp")`, which needs "se", takes it and
        warns.
    noise: None for one sigma_eps; "agents" for one per agent (sigma_eps_0, ...); or a list with the name of each
        agent's noise, where agents with the same name share it. With observed=True an agent predicts with its own
        sigma_eps, without s_n.
    robust: weigh outliers down, so that a stuck sensor does not spoil the noise: an observation counts as at most 2.5
        standard deviations off the prediction from the agent's other rows. `last_fit.outliers` counts them.
    private: "rows" refuses methods that send a row, its inputs, or statistics over so few rows that they determine
        them; the error names the alternatives. `calibrate` then asks about points that are nobody's inputs.
        docs/privacy.md says what this protects against, and what it does not.
    inputs: the names of the inputs; by default those of the columns, where the X_i are data frames.
    time: the input that is the time; by default the only one with dates, if there is one. The default kernel is then
        "matern32(..) * matern12(time)", and queries without this input are about `at_time`, by default about `now`.
    window, max_rows, keep: what agents forget after every `observe`: rows that are a window ("3 days") older than the
        newest of all, and the oldest rows of an agent with more than max_rows. With keep="summary" they stay as coarse
        groups, which dec-summary uses; "nothing" drops them. See `forget`.
    backend: "in-process", or "ray" for groups of agents at the workers of a Ray cluster, with the same answers.
        workers: how many, by default one per core. address: the cluster to join, by default the one that is running,
        else a local one is started. `close`, or leaving a `with` block, ends the workers and what was started.

    All data are copied. Columns of data frames are matched by name, not by order: all agents need the same columns, and
    queries may have more.

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

    From files, one per agent, which may be larger than memory:

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
        time: str | None = None,
        window: float | str | None = MemoryOptions.window,
        max_rows: int | None = MemoryOptions.max_rows,
        keep: Keep = MemoryOptions.keep,
        backend: BackendName | Backend = "in-process",
        workers: int | None = None,
        address: str | None = None,
    ) -> None:
        check_whole("seed", seed, least=0)
        policy = checked(MemoryOptions, {"window": window, "max_rows": max_rows, "keep": keep})
        self.memory = MemoryOptions(**policy)
        given, self.inputs = check_shards(shards, inputs)
        self.noise, self.robust = noise, as_flag(robust, "robust")
        self.noise_model = noise_model_of(noise, len(given), known=given.known_noise, robust=self.robust)
        self.data = given.observed(self.noise_model, own_groups(noise, len(given), self.noise_model))
        self.normalize = as_flag(normalize, "normalize")
        self.mean, self.coordinates = check_mean(mean), coordinate_rule(coordinates, self.inputs)
        self.units: Mapping[str, str] = {}  # of inputs and target, by name, where they are known
        time_input(self.inputs, self.units, time)  # or an error, if there is no such input
        self._time = time
        self.kernel_given = kernel is not None  # else the default one
        self.kernels = self._in_model(self._default_kernel() if kernel is None else kernel)
        self._kernel = self.kernels[0] if len(self.kernels) == 1 else None
        if self._kernel is None and theta is not None:
            raise InputError("theta belongs to one kernel: expected its name, got several to choose from by training")
        self.graph = as_topology(graph, len(given), seed=seed, places=places_of(given, self.coordinates))
        self.seed = seed
        self.private: PrivateRows | None = check_private_rows(private, self.data.counts)
        self.theta: Array | None = None if theta is None else check_theta_of(self.data, theta, self.names)
        self._backend = chosen_backend(backend, self.data, self.graph, workers, address)
        self._labels: tuple[str, ...] = ()
        self.last_fit: Fit | None = None
        self._trained: Dataset | None = None  # the data of the last fit, without rows that have left since
        self._all_trained = True  # whether none have left
        self._inspections: dict[int, Inspection] = {}  # of the rows of agents that have observed more
        self._conditioned: ConditionedFleet | None = None
        self._cache = PredictionCache()  # posteriors and agreements, to which new rows are added
        self.sent_groups: SentGroups = {}  # the rows of the groups that agents have sent
        self.kept_groups = (KeptGroups.none(self.dimension),) * self.agents  # of rows that they have forgotten
        self.requests: dict[int, Requests] = {}  # by agent, the request that brought each row; "" for none
        self._calibration: Calibration | None = None
        self.unfinished: Progress | None = None  # the interrupted training whose estimates theta is
        warn_of_shards(given, self.inputs, self.coordinates)
        if self.theta is not None and self.mean == "zero" and not self.normalize:
            sigmas = self.theta[np.array(self.kernel.units(self.dimension)) == OBSERVED]
            warn_of_offset(given, float(sigmas.max()))

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
        """Make a fleet from files, which may be larger than memory: CSV, Parquet, NetCDF and Zarr.

        dec-full-gp and full-gp read the files in chunks: a first pass finds the fleet's box, later ones add up moments.
        Every other method loads all rows when it first needs them, up to a limit.

        files: a pattern ("data/*.parquet"), a path, or a list of them.
        inputs, target, agent: columns; in NetCDF and Zarr coordinates and variables. Without agent, each file belongs
            to one agent; `fleet.data.names` has their names. Times become days since 1970. sst, lon and lat also stand
            for the names listed at `fleetgp.io.load_sst`. A temperature in kelvin is converted only if `reading` has
            celsius=True. `fleet.data.notes` says what was done.
        deviation: the column of the known standard deviations of the target.
        missing, fill, reading: as in `fleetgp.io.read_observations`. With date, box and stride only a part of NetCDF
            and Zarr fields is read: all times of that day, longitudes from -180 to 180 with a box. Cells without a
            value are not rows. `fleet.data.dropped` and `fleet.data.empty` count what was left out.
        sample: how many rows of each agent, drawn at random by the seed, methods that need rows get; `last_fit.held`
            has how many there are. dec-full-gp and full-gp always use all rows.
        memory: bytes of observations that may be loaded, 1 GB.
        rows: how many are read at once by each core. Memory is then some 50 MB per core and 0.5 MB for each agent's
            moments, besides libraries and the training itself, whatever the size of the files.
        cache: a folder that keeps the result of the first pass for each file. A second call reads only new and changed
            files, also if the first one failed or was interrupted.
        graph, model: as for a `Fleet`. Noise that differs, and robust, need rows: dec-full-gp and backend="ray" have
            one noise. With "ray" the workers read the files, one per agent, under the same path on all machines, for
            dec-full-gp and full-gp.
        progress: as for `Fleet.train`, for the first pass over the files.
        """
        given = given_in(model, ModelKeywords, "from_files")
        if given.get("backend") == "ray" and (deviation is not None or "noise" in given or given.get("robust", False)):
            raise InputError(
                "deviation, noise and robust need rows, and a cluster knows files by sums over them: leave them out, "
                'or use backend="in-process"'
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
        return cls._labelled(data, data, data.names, inputs, target, graph, seed, given)

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
        """Make a fleet from the columns of a data frame (pandas).

        inputs, target: columns, or levels of the index. Inputs may be times, or dates as text: they become numbers of
            `time_unit` ("days", "hours" or "seconds") since 1970, as `fleet.units` says, and queries may have times.
        agent: the column that names the agent of each row; `fleet.labels` has the names. Without it rows are split over
            `agents` (1), as `by` and `axis` ("stripes" along the input of this name) say: see `partition`.
        deviation: the column of the known standard deviations of the target.
        units: of columns, {"sst": "°C"}, for maps and figures.
        missing: "refuse" rows with missing or infinite values, or "drop" them; `fleet.dropped` counts these.
        fill: values that mean "missing", [-9999]. By default a value that looks like one is an error; [] says that all
            values are real.
        graph, seed, model: as for a `Fleet`. With noise="agents" every sigma_eps has its agent's name.

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
        columns = Columns(inputs, target, agent, deviation, fill, Reading(time_unit=time_unit))
        rows = rows_of_frame(frame, columns, units, missing)
        names, shards = split_rows(rows, columns.inputs, agents, by, axis, seed)
        return cls._labelled(shards, rows, names, columns.inputs, target, graph, seed, given)

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
        """Make a fleet from an xarray DataArray or a variable of a Dataset: one observation per cell with a value.

        target: the variable, by default the name of the DataArray, or the only variable of the Dataset.
        inputs: coordinates, or variables over the target's axes. By default the coordinates of its axes with more than
            one chosen cell, the last axis first: lon, lat, time. Times are as in `from_frame`.
        date, box, stride: a day; west, south, east and north in degrees; every nth row and column of a map.
        at: one value for each other axis, {"depth": 5, "time": "2021-01-05"}: the nearest cell, within half a cell.
            `fleet.notes` says what was chosen, and how many cells have no value.
        celsius: convert a target in kelvin to degrees Celsius; `fleet.units` has its unit.
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
        names, shards = split_rows(rows, columns.inputs, agents, by, axis, seed)
        return cls._labelled(shards, rows, names, columns.inputs, columns.targets[0], graph, seed, given)

    @classmethod
    def _labelled(
        cls,
        shards: Sequence[tuple[Any, ...]] | Dataset,
        source: FileDataset | ObservationTable,
        labels: Sequence[str],
        inputs: Sequence[str],
        target: str,
        graph: object,
        seed: int,
        model: dict[str, Any],
    ) -> Self:
        """A fleet whose agents have names. source: has the units of the data, and notes about them."""
        if isinstance(model.get("noise"), str) and model["noise"] == AGENTS:
            model["noise"] = labels
        if (axis := time_input(inputs, source.units, model.get("time"))) is not None:
            model["time"] = inputs[axis]
        fleet = cls(shards, graph, inputs=inputs, seed=seed, **model)
        return fleet.set_metadata(labels, target, source.units, source.dropped, source.notes)

    # ---- its data and its model -------------------------------------------------------------------------------------

    @property
    def agents(self) -> int:
        """M, the number of agents."""
        return len(self.data)

    @property
    def dimension(self) -> int:
        """D, the number of inputs."""
        return self.data.dimension

    @property
    def shards(self) -> tuple[tuple[Any, ...], ...]:
        """The agents' data as they were given, (X_i, y_i) or (X_i, y_i, s_i); data in files are loaded."""
        return tuple(own.as_given for own in self.data)

    @property
    def labels(self) -> tuple[str, ...]:
        """The agents' names as the data have them, else their numbers."""
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
        """Set names and units, and notes about the source of the data; return the fleet.

        labels: the agents' names.  target: the name of what is observed.
        units: of inputs and target by name. An input with the unit "days since 1970-01-01" (or hours, or seconds) is a
            time: data frames may have it as times. The only one is `time`.
        dropped: how many rows of the source could not be used.  notes: what else was done to its values. None leaves
            either as it is.

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
        if not self.kernel_given and self.theta is None and len(self.kernels) == 1:
            self.kernels = self._in_model(self._default_kernel())  # the units may say which input is the time
            self._kernel = self.kernels[0]
        self.dropped = self.dropped if dropped is None else dropped
        self.notes = self.notes if notes is None else notes
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hyperparameters, in the order of theta; of the first kernel until one is chosen."""
        return self.first_kernel.names(self.inputs or self.dimension)

    @property
    def time(self) -> str | None:
        """The input that is the time; None if there is none."""
        axis = self._time_axis
        return None if axis is None or self.inputs is None else self.inputs[axis]

    @property
    def _time_axis(self) -> int | None:
        """The number of this input."""
        return time_input(self.inputs, self.units, self._time)

    @property
    def now(self) -> float | None:
        """The time of the newest row of all agents, which only the simulator knows; None without a time input.

        Queries without the time input are about this time. A process uses its clock: see docs/time.md.
        """
        return newest(self.data, self.inputs, self.time)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments for `Fleet(others, graph, **settings)`: all but data, graph, theta and backend."""
        return {
            "normalize": self.normalize,
            "mean": self.mean,
            "coordinates": self.coordinates.name,
            "kernel": [kernel.name for kernel in self.kernels] if self._chosen else None,
            "noise": self.noise,
            "robust": self.robust,
            "private": self.private,
            "seed": self.seed,
            "inputs": self.inputs,
            "time": self.time,
            "window": self.memory.window,
            "max_rows": self.memory.max_rows,
            "keep": self.memory.keep,
        }

    @property
    def _chosen(self) -> bool:
        """Whether the kernel is another than a new fleet would have."""
        return self.kernel_given or self.kernels != self._in_model(self._default_kernel())

    @property
    def kernel(self) -> Kernel:
        """The kernel, or an error while there are several to choose from."""
        if self._kernel is None:
            raise InputError("the fleet has yet to choose its kernel: call train first")
        return self._kernel

    @kernel.setter
    def kernel(self, kernel: str | Kernel | Sequence[str | Kernel]) -> None:
        kernels, self.kernel_given = self._in_model(kernel), True
        self._kernel = kernels[0] if len(kernels) == 1 else None
        if not isinstance(kernel, str | Kernel) or not all(one in self.kernels for one in kernels):
            self.kernels = kernels

    @property
    def first_kernel(self) -> Kernel:
        """The kernel, or the first of those to choose from."""
        return self._kernel or self.kernels[0]

    def _in_model(self, kernel: object) -> Kernels:
        """The kernels in the coordinates of the model and with its noise."""
        inputs = self.inputs or self.dimension
        kernels = kernels_in_coordinates(self.coordinates, as_kernels(kernel, inputs), inputs, self.mean)
        return tuple(with_noise(one, self.noise_model) for one in kernels)

    def _default_kernel(self, *methods: str, preset: str | None = None) -> str:
        return default_kernel(*methods, preset=preset, inputs=self.inputs, time=self.time, rule=self.coordinates)

    @property
    def trained_rows(self) -> tuple[int, ...]:
        """(M,) how many rows of each agent the last training is from, the first ones that there are; () without one."""
        return () if self._trained is None else tuple(self._trained.counts)

    @property
    def moments(self) -> FleetMoments | None:
        """The moments of all data, if the last training computed them and no rows were observed since; else None."""
        unchanged = self._trained is not None and self._all_trained and self.data.same(self._trained)
        return self.last_fit.moments if self.last_fit is not None and unchanged else None

    @property
    def earlier_moments(self) -> tuple[FleetMoments, tuple[int, ...]] | None:
        """The moments to which those of newer rows are added, and (M,) the number of rows that they include.

        They are from the last prediction by dec-full-gp in this process, else from the training.
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
        """The last calibration; None if there is none, or data or theta have changed since."""
        known, theta = self._calibration, self.theta
        return known if known is not None and theta is not None and np.array_equal(known.theta, theta) else None

    @calibration.setter
    def calibration(self, calibration: Calibration | None) -> None:
        self._calibration = calibration

    def snapshot(self, theta: Sequence[float] | Array | None = None) -> ModelSnapshot:
        """Return the data and the model as they are now, immutable: what predictions are made from.

        theta: hyperparameters to use instead of the fleet's.

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
            model = check_theta_of(self.data, self.theta, self.names)  # set by the user
        else:
            model = fit.thetas if fit.moments is None else fit.thetas[0]  # with moments comes an agreed theta
        to_agree = self.normalize or self.mean != "zero"
        as_given = self.coordinates.name == "as-given"
        grown = trained is not None and self._all_trained and None not in self.data.changes_since(trained).values()
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
            trained=self.trained_rows,
            mean=self.mean,
            normalize=self.normalize,
            coordinates=fit.coordinates if fit is not None else AS_GIVEN if as_given else None,
            rule=self.coordinates,
            central=fit is not None and not training_method(fit.method).decentralized,
            held=held_by(self.data, fit),
            units=self.units,
            time=self.time,
            target=self.target,
            labels=self.labels,
            private=self.private,
            sent=self.sent_groups,
            kept=self.kept_groups if any(map(len, self.kept_groups)) else (),
        )

    def __repr__(self) -> str:
        points = sum(self.data.counts)
        return f"Fleet(agents={self.agents}, points={points}, dimension={self.dimension}, graph={self.graph!r})"

    # ---- its workers ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the workers of a fleet on a cluster; the next training or prediction starts new ones.

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
        """Learn the hyperparameters; the fleet keeps the result as `last_fit` and, unless it diverged, `theta`.

        If a training is interrupted (Ctrl-C) and the fleet has no theta of a finished one, its estimates become `theta`
        and the training `unfinished`. `last_fit` is always a finished training.

        preset: "paper" for the paper's settings where you give no others: rho=500, kappa and lipschitz 5,000, nested
            gradient descent, no noise floor, 100 rounds of the decentralized methods and tol=1e-3 of the others. If the
            kernel was not chosen, the fleet takes the paper's, "se", and warns. The paper does not normalize: give
            normalize=False to the fleet.
        progress: True for a bar on the terminal, or a callable that gets a `Progress`.
        {options}

        An option that the method does not have is an InputError, which names the methods that have it. A training warns
        if it diverged, reached its round limit (`NotConvergedWarning`), ended at a bound, or ended where the likelihood
        is flat: `flat` of the result names the hyperparameters.
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
        with reported(progress, method, chosen, self.names, self.keep_unfinished) as reporter:
            (fit,) = self._backend.train(row, [self.data], self.graph, self.kernels, chosen, reporter)
            fit = self.adopt(note_sample(fit, self.data, self.last_fit))
            reporter.ended(fit)
        warn_of_end(fit, chosen, self.names)
        return fit

    def trainer(self, method: str = "dec-fact-gp", **options: Unpack[TrainKeywords]) -> Trainer:
        """Return a training that you step round by round; the fleet's `last_fit` and `theta` stay as they are.

        options: those of `train`, without rounds, seconds and lipschitz. full-gp, fact-gp and g-fact-gp have no steps.
        """
        row = training_method(method)
        refuse_private(row, self.private, rows=min(self.data.counts))
        given = given_in(options, TrainKeywords, "trainer")
        row.check_stepwise([name for name in given if name in TrainerOptions.__annotations__])
        self._backend.check_here("trainer")
        if self.coordinates.name != "as-given":
            raise InputError(f'trainer: expected coordinates="as-given", got "{self.coordinates.name}": use train')
        if self.robust:
            raise InputError(
                "trainer: expected a fleet without robust, which alternates trainings with weights: use train"
            )
        observed = {self.target: self.data}
        chosen = training_options(row, given, self._trained_as, observed, self.kernels, self.names)
        return Trainer(prepare(row, self.data, InProcess(self.graph), self.kernel, chosen), chosen)

    @property
    def _trained_as(self) -> dict[str, Any]:
        """The fields of `TrainingOptions` that describe the model."""
        return {
            "seed": self.seed,
            "normalize": self.normalize,
            "mean": self.mean,
            "coordinates": self.coordinates,
        }

    def _take_default_kernel(self, method: TrainingMethod, preset: str | None) -> None:
        """Take the kernel that the method or the preset needs, if none was chosen and no theta depends on it."""
        needed = self._default_kernel(method.name, preset=preset)
        if self.kernel_given or self.theta is not None or needed == self.kernel.name:
            return
        who = method.name if default_kernel(method.name) == needed else f'preset="{preset}"'
        warn(
            f'no kernel was chosen, and {who} needs kernel="{needed}" instead of the default '
            f'"{self.kernel.name}": the fleet has the kernel "{needed}" now. Give kernel="{needed}" to the fleet'
        )
        self.kernel = needed

    def adopt(self, fit: Fit, rows: Sequence[int] | None = None) -> Fit:
        """Take over the result of a training on the fleet's data; return it with names.

        rows: (M,) how many rows of each agent it is from, the first ones; None for all that there are now.
        """
        kernel = next((kernel for kernel in self.kernels if kernel.name == fit.kernel), self.first_kernel)
        if fit.status != "diverged":
            self.theta, self.unfinished, self._kernel = fit.theta, None, kernel
        fit.ledger.labels = self.labels
        self.last_fit = replace(fit, names=kernel.names(self.inputs or self.dimension))
        self._trained, self.calibration = self.data if rows is None else self.data.first(rows), None
        self._all_trained = True
        return self.last_fit

    def keep_unfinished(self, furthest: Progress | None) -> str:
        """Keep the estimates of an interrupted training unless the fleet has better ones; return a note about it."""
        if furthest is None or furthest.thetas is None:
            return "the training was interrupted before its first round: the fleet is as it was"
        interrupted = f"the training was interrupted after {furthest.round} rounds of {furthest.task}"
        if self.theta is not None and self.unfinished is None:
            return f"{interrupted}: the fleet keeps the theta that it had"
        if len(self.kernels) > 1:
            return f"{interrupted}: the fleet is as it was, since estimates are of no use without their kernel"
        self.last_fit, self.unfinished = None, furthest
        self.theta = np.exp(np.log(furthest.thetas).mean(axis=0))
        return f"{interrupted}: fleet.theta holds its estimates; train(theta0=fleet.theta) continues from them"

    def observe(self, agent: AgentName, X: Any, y: Any, s: Any = None, *, request: str | None = None) -> None:
        """Add observations of one agent; theta stays. Predictions are as if the fleet had had all rows from the start.

        agent: its number, or its name in `labels`.
        s: the known standard deviations of the observations, if the fleet's data have them.
        request: a name for these observations, by which `remove` can take them back.

        The next prediction computes only what is new. A dense posterior costs N^2 operations per new row. Moments of
        new rows are added, as long as these rows lie in the box of the old ones. Posteriors of other agents stay as
        they are, unless a new row is drawn into the samples of grBCM, which all agents hold (one row in M is). The
        order in which rows arrive does not matter. With normalize, mean or coordinates and a theta that was given,
        every row changes the model, and everything is recomputed; to avoid this, train once before. With window or
        max_rows, agents then forget old rows as `forget` does.

        >>> from fleetgp import partition, synthetic_field
        >>> field = synthetic_field(120, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
        >>> fleet.observe(2, [[1.1, 0.4], [1.2, 0.4]], [0.3, 0.5])
        >>> [len(own) for own in fleet.data]
        [30, 30, 32, 30]
        """
        number = check_agent(agent, self.labels)
        name = "" if request is None else as_text("request", request)
        limits = self._limits if self.memory.window is not None else None  # or an error, before anything has changed
        rows, inspection = observed_more(
            self.data,
            number,
            (with_numbers(X, self.units), y, s),
            self.noise_model,
            self.inputs,
            self._inspections.get(number),
            own_groups(self.noise, self.agents, self.noise_model)[number],
        )
        if name or number in self.requests:
            before = self._requests_of(number)
            self.requests[number] = np.concatenate([before, np.full(len(rows), name, dtype=object)])
        self._inspections[number] = inspection
        self.data, self.calibration = self.data.grown(number, rows), None
        if limits is not None or self.memory.max_rows is not None:
            self.forget()

    def remove(
        self,
        agent: AgentName,
        rows: Any = None,
        *,
        where: str | None = None,
        between: tuple[Any, Any] | None = None,
        request: str | None = None,
    ) -> Removal:
        """Take rows of one agent back; return the receipt. The fleet is then as if it had never had these rows.

        Give exactly one of:

        rows: their numbers in `shards`, or a mask.
        where: comparisons of inputs or the target with numbers or dates, joined by "and": "sst > 40 and lon < 5".
        between: two points in time; rows from the first to the last, both included.
        request: the name given to `observe`.

        theta stays until the next training. A group of dec-summary that loses a row is withdrawn, and its other rows
        wait as new rows do. Kept groups of forgotten rows are removed whole if they may contain a row that is asked
        for.

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(60, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=3), theta=[1.2, 0.3, 1.3, 0.1])
        >>> fleet.observe(2, [[1.1, 0.4], [1.2, 0.4]], [40.3, 40.5], request="dive-7")
        >>> print(fleet.remove(2, request="dive-7"))
        agent 2: 2 rows removed, 20 remain
        >>> fleet.remove("2", where="y > 40").rows
        0
        """
        number = check_agent(agent, self.labels)
        if not self.data.in_memory:
            raise self.data.not_changing("change the files")
        names = (*names_of(self.inputs, self.dimension), self.target)
        given = {"rows": rows, "where": where, "between": between, "request": request}
        kept, time = self.kept_groups[number], self._time_axis
        requests = self.requests.get(number)
        chosen = select(self.data[number], kept, names, self.units, time, requests, given)
        remaining = len(chosen.rows) - int(chosen.rows.sum())
        if chosen.rows.sum() == sum(self.data.counts):
            raise InputError("remove: these are all rows of the fleet: observe others before, or delete the fleet")
        if self.private is not None and chosen.rows.any() and 0 < remaining < FEWEST_ROWS:
            raise InputError(
                f'remove: private="rows" needs at least {FEWEST_ROWS} rows of an agent that has any, and {remaining} '
                f"of agent {self.labels[number]} would remain: remove all of them"
            )
        departure = removed(chosen.rows, self.sent_groups.get(number, ()))
        gone = kept.rows(chosen.kept)
        receipt = self._without(number, departure, kept.rows(~chosen.kept) if len(gone) else kept)
        return replace(receipt, kept_groups=len(gone), kept_rows=int(gone.counts.sum()))

    def forget(self, before: Any = None, *, keep: Keep | None = None) -> tuple[Removal, ...]:
        """Drop old rows of all agents; return a receipt for each agent that has some.

        before: a date or a number; rows with an earlier time leave. Without it, rows leave by the fleet's window and
            max_rows, as after every `observe`. The window ends at the newest row of all agents. If no input is a time,
            the rows that arrived first are the oldest.
        keep: "summary" or "nothing"; by default the fleet's. With "summary" the rows stay in groups of at least 20 or
            so. dec-summary uses these groups as the agent's own and sends them to the others; everything else uses rows
            alone.

        An agent keeps its newest five rows, however old they are. Some rows wait, so that the difference of two
        summaries describes no fewer rows than a group. By window and max_rows, rows that are kept as groups leave
        together, once a tenth of an agent's rows (20 at least) are too old. The same holds for the rows of a group that
        dec-summary has sent, if only a part of the group is too old. Receipts count rows that wait as overdue.

        >>> from fleetgp import Fleet
        >>> days = np.arange(60.0)[:, None]
        >>> fleet = Fleet([(days, np.sin(days[:, 0] / 9.0))], theta=[9.0, 1.0, 0.1], inputs=["day"])
        >>> fleet = fleet.set_metadata(["Ada"], "t", {"day": "days since 1970-01-01"})
        >>> print(*fleet.forget("1970-02-10"))
        agent Ada: 40 rows removed, 20 remain; 40 of the removed rows stay in kept groups
        >>> fleet.kept_rows
        [40]
        """
        chosen = self.memory.keep if keep is None else checked(MemoryOptions, {"keep": keep})["keep"]
        if not self.data.in_memory:
            raise self.data.not_changing("change the files")
        time = self._time_axis
        if before is None:
            limit = self._limits
        else:
            limit = Limit(moment(before, self._unit_of(needed(time, "before")), "before"))
        receipts = [self._forget(agent, limit, time, chosen, patient=before is None) for agent in range(self.agents)]
        return tuple(receipt for receipt in receipts if receipt is not None)

    @property
    def kept_rows(self) -> list[int]:
        """How many forgotten rows of each agent are in kept groups."""
        return [int(own.counts.sum()) for own in self.kept_groups]

    @property
    def _limits(self) -> Limit:
        """What is too old by the fleet's policy, now."""
        window, max_rows = self.memory.window, self.memory.max_rows
        if window is None:
            return Limit(None, max_rows)
        time = needed(self._time_axis, "window")
        span, now = duration(window, self._unit_of(time), "window"), self.now
        assert now is not None, "there is a time"
        return Limit(now - span, max_rows)

    def _unit_of(self, number: int) -> str | None:
        """The unit of an input, if it is known."""
        return self.units.get(names_of(self.inputs, self.dimension)[number])

    def _forget(self, agent: int, limit: Limit, time: int | None, keep: Keep, *, patient: bool) -> Removal | None:
        """Let the rows of an agent leave that are too old; None if there are none."""
        own, sent = self.data[agent], self.sent_groups.get(agent, ())
        rows = limit.exceeded(None if time is None else own.inputs[:, time], len(own))
        if not rows.any():
            return None
        longitude = self.coordinates.longitude
        turned = InMemory([own]).along_arc(longitude)[0].inputs
        scales = self._near(turned)
        departure = forgotten(rows, sent, keep, turned / scales, patient=patient)
        kept = self.kept_groups[agent]
        if departure.groups:
            new = summarized(own, turned, departure.groups, self.requests.get(agent))
            most = max(1, groups_within(PredictionOptions.budget, self.agents, self.dimension) // (2 * self.agents))
            kept = kept.plus(new).within(most, scales, longitude)
        overdue = int((rows & ~departure.rows).sum())
        return replace(self._without(agent, departure, kept), overdue=overdue)

    def _near(self, inputs: Array) -> Array:
        """(D,) by which near rows of an agent are near: the length-scales, or the spread of its inputs (N, D)."""
        in_units_of_inputs = self.coordinates.name in ("as-given", "scaled")
        if self.theta is None or self._kernel is None or not in_units_of_inputs:
            spread = inputs.std(axis=0)
            return np.where(spread > 0.0, spread, 1.0)
        return self._kernel.scales(Hyperparameters.from_theta(self.theta), self.dimension)[0]

    def _without(self, agent: int, departure: Departure, kept: KeptGroups) -> Removal:
        """Take rows out of all that there is of them; return the receipt."""
        name, gone, ended = self.labels[agent], departure.rows, []
        if gone.any():
            states = [entry.value for entry in self._cache.shared.values() if isinstance(entry.value, SharedState)]
            ended += ["calibration"] if self.calibration is not None else []
            ended += [what for what in ("moments", "samples") if any(bool(getattr(one, what)) for one in states)]
            self.sent_groups = {**self.sent_groups, agent: renumbered(departure.sent, gone)}
            if agent in self.requests:
                self.requests[agent] = self.requests[agent][~gone]
            self.data, self.calibration = self.data.replaced(agent, self.data[agent].rows(~gone).locked()), None
            self._inspections.pop(agent, None)
            if self._trained is not None:
                before = self._trained[agent]  # the first ones of the rows
                lost = gone[: len(before)]
                if lost.any():
                    self._trained, self._all_trained = self._trained.replaced(agent, before.rows(~lost)), False
        if kept is not self.kept_groups[agent]:
            self.calibration = None
            self.kept_groups = (*self.kept_groups[:agent], kept, *self.kept_groups[agent + 1 :])
        return Removal(
            name,
            int(gone.sum()),
            len(self.data[agent]),
            sum(map(len, departure.groups)),
            departure.withdrawn,
            departure.waiting,
            ended=tuple(ended),
        )

    def _requests_of(self, agent: int) -> Requests:
        """(N,) the request that brought each row of an agent."""
        return self.requests.get(agent, np.full(len(self.data[agent]), "", dtype=object))

    def needs_training(self) -> TrainingNeed:
        """Return whether the fleet should train again, judged by the rows observed since the last training.

        Each agent predicts its new rows, 100 at a time, from its earlier rows: with theta, and with alternatives that
        differ from theta by a factor of 1.5. Theta no longer fits if the odds against it reach 1,000 to 1. For a theta
        that fits, the probability of this is at most 0.1%. The result is true if, in addition, the new rows are at
        least a tenth of all rows. Only these odds are sent; docs/fleet.md explains the rule.

        >>> from fleetgp import partition, synthetic_field
        >>> field = synthetic_field(400, seed=1)
        >>> shards = partition(field.inputs, field.observations, agents=4)
        >>> fleet = Fleet([(X[:60], y[:60]) for X, y in shards])
        >>> fit = fleet.train()
        >>> for agent, (X, y) in enumerate(shards):
        ...     fleet.observe(agent, X[60:], y[60:])
        >>> fleet.needs_training().advice
        'Theta fits the 160 new rows: nothing to do.'
        >>> for agent, (X, y) in enumerate(shards):
        ...     fleet.observe(agent, X[60:] + 0.001, 3.0 * y[60:])  # another field
        >>> if fleet.needs_training():
        ...     fit = fleet.train(theta0=fleet.theta)
        """
        fit, trained = self.last_fit, self._trained
        if fit is None or trained is None or fit.status == "diverged":
            raise InputError("needs_training compares new rows with the last training: call train first")
        return training_need(self.snapshot(), trained, fit)

    # ---- prediction -------------------------------------------------------------------------------------------------

    def condition(
        self, theta: Sequence[float] | Array | None = None, *, engine: str = "auto", n_neighbours: int | None = None
    ) -> ConditionedFleet:
        """Return the fleet at one theta, with every agent's posterior, to predict from again and again.

        It stays as it is when the fleet is trained again or gets another theta. See `predict` for theta, engine and
        n_neighbours.

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
        """The conditioned fleet for a method, a new one only if something has changed, and the method's own options."""
        row, rest = predictor_of(method), dict(options)
        theta, engine, at_time = (rest.pop(name, other) for name, other in BESIDE)
        ENGINES.check(engine)
        refuse_foreign(row, rest if isinstance(engine, str) and engine == "auto" else {"engine": engine, **rest})
        n_neighbours = rest.pop("n_neighbours", None)
        snapshot = self.snapshot(theta)
        if self._conditioned is None or not self._conditioned.same(snapshot, engine, n_neighbours):
            self._conditioned = ConditionedFleet(snapshot, engine, n_neighbours, self._cache, self._backend)
        self._conditioned.calibration = self.calibration if theta is None else None
        return self._conditioned, rest if at_time is None else {**rest, "at_time": at_time}

    @takes(PredictKeywords, PredictionOptions, ThetaOptions, QueryOptions)
    def predict(
        self,
        queries: Any,
        method: str | None = None,
        *,
        observed: bool = False,
        agent: AgentName | None = None,
        **options: Unpack[PredictKeywords],
    ) -> Prediction:
        """Predict mean and variance at the queries (T, D) by any of `PREDICTION_METHODS`; every agent gets the answer.

        queries: an array with the inputs in their order, or a data frame that has them among its columns, times as
            times (see `units`). Or an xarray Dataset or DataArray with the inputs as coordinates: all cells, and
            `to_dataset` of the result has their grid.
        method: by default dec-summary, which sends no row: once, a summary of each agent's rows goes to all agents, in
            groups of at least `min_rows`.
        observed: whether `variance` is of an observation or of f. In any case `std` is of f, `std_observed` of an
            observation, and `interval(0.95)` returns both ends.
        agent: who asks: `mean` and `variance` are its answer, and along the tree no other agent receives it. Without it
            every agent gets the answer, in `means` and `variances`.
        {options}

        An option that the method does not have is refused. Posteriors and what the agents agreed on are kept (see
        `condition`) until data, theta or engine change: later predictions are faster, and send less. A FleetGPWarning
        says where the answer is no better than the prior (`prior_only` of the result).
        """
        conditioned, rest = self._conditioned_for(method, given_in(options, PredictKeywords, "predict"))
        return conditioned.predict(queries, method, observed=observed, agent=agent, **rest)

    @takes(PosteriorKeywords, PredictionOptions, ThetaOptions, QueryOptions)
    def joint(
        self,
        queries: Any,
        method: str | None = None,
        *,
        observed: bool = False,
        agent: AgentName | None = None,
        **options: Unpack[PosteriorKeywords],
    ) -> Joint:
        """Predict mean (T,) and covariance (T, T) of f at the queries (T, D), by any method of `predict` but NPAE.

        full-gp, dec-full-gp, and any method with one agent: the exact joint posterior; dec-full-gp needs no round.
        dec-nearest: the exact posterior from all observations among the nearest to any query, at most 5,000.
        PoE, gPoE, BCM, rBCM, grBCM: the committee's rule, applied to the whole vector of at most 500 queries. The
        agents add up T(T+3)/2 + 1 numbers along the tree (T = 100: 41 kB up and down each edge).

        Where queries are correlated, the variances of a joint committee differ from those of `predict`. A committee
        assumes that the agents' data are independent given f at the queries, which is nearly true of many queries
        (Tresp, 2000) and not of one: more queries among the data improve the answer. The covariance includes the
        calibration. Where it is close to singular, a committee adds 1e-9 of the prior variance: see `jitter`.

        observed: the covariance of observations instead of f, with the noise of the agent that asks on its diagonal.
        agent: who asks; along the tree no other agent receives the answer.
        {options}

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(120, seed=1)
        >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
        >>> fleet = Fleet(shards, theta=theta, kernel="se")
        >>> joint = fleet.joint([[0.5, 0.5], [0.5, 0.6], [1.5, 0.2]], "dec-rbcm")
        >>> joint.covariance.shape, joint.rounds, joint.sample(5, seed=1).shape
        ((3, 3), 4, (5, 3))
        """
        conditioned, rest = self._conditioned_for(method, given_in(options, PosteriorKeywords, "joint"))
        return conditioned.joint(queries, method, observed=observed, agent=agent, **rest)

    @takes(SampleKeywords, PredictionOptions, ThetaOptions, QueryOptions)
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
        """Draw (n, T) from the joint posterior of f at the queries (T, D); the same seed gives the same draws.

        method, observed, agent: as in `joint`.
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

    @takes(PosteriorKeywords, PredictionOptions, ThetaOptions, QueryOptions)
    def gradient(
        self,
        queries: Any,
        method: str | None = None,
        *,
        agent: AgentName | None = None,
        **options: Unpack[PosteriorKeywords],
    ) -> Gradient:
        """Return the gradient (T, D) of the predictive mean at the queries (T, D), in the units of the data.

        It is the gradient of the mean that `predict` returns by the same method, with the same agents and observations
        taking part; where these change, `predict` has small steps, which the gradient does not show. Far from all data
        it is the slope of the mean function. By full-gp, dec-full-gp and dec-nearest, or with one agent, `std` and
        `covariance` say how well the gradient of f is known. With matern12 f has no gradient: see `kinks`. The agents
        add up D + 1 times the numbers of a prediction. NPAE, and consensus="average", have no gradient.

        agent: who asks; along the tree no other agent receives the answer.
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

    @takes(PosteriorKeywords, PredictionOptions, ThetaOptions, QueryOptions)
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
        """Choose the n candidates to measure next, each given that those before it are measured.

        agent: for whom; no other agent receives the answer. With None every agent gets n places, no place twice, from
            the same candidates or, with a list of M arrays, from its own. All agents have the same joint posterior and
            make the same assignment, so nothing more is sent. The best place is assigned first; where several agents
            may go there, they take turns.
        candidates: (C, D) places. Copies count once.
        criterion: "variance", where the fleet knows least; "mutual-information", where an observation is most
            informative about the other candidates (Krause, Singh, Guestrin 2008), which is seldom at their edge.
        method: of the joint posterior, as in `joint`, which limits the number of candidates: 500 in all by a committee.
        {options}

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(120, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
        >>> places = np.stack(np.meshgrid(np.linspace(0, 2, 6), np.linspace(0, 2, 6)), -1).reshape(-1, 2)
        >>> suggestion = fleet.suggest(0, places, n=3, criterion="mutual-information")
        >>> suggestion.places.shape, bool((np.diff(suggestion.gains) < 0).any())
        ((3, 2), True)
        >>> fleet.suggest(None, places, n=2).agents.tolist()
        [0, 1, 2, 3, 1, 2, 3, 0]
        """
        check_whole("n", n, least=1)
        check_criterion(criterion)
        number = None if agent is None else check_agent(agent, self.labels)
        conditioned, rest = self._conditioned_for(method, given_in(options, PosteriorKeywords, "suggest"))
        at_time = rest.pop("at_time", None)
        lists = [conditioned.checked(one, at_time) for one in candidate_lists(candidates, number, self.agents)]
        places = Candidates.of(lists, number, self.agents)
        joint = conditioned.known_jointly(places.places, method, agent=number, **rest)
        chosen = places.chosen(joint, criterion, int(n))
        points, name = conditioned.snapshot.points(chosen[0]), predictor_of(method).name
        return Suggestion(*chosen, criterion, name, joint.ledger, points, self.labels)

    @takes(CalibrateKeywords, PredictionOptions)
    def calibrate(
        self,
        method: str | None = None,
        *,
        holdout: str = "both",
        level: float = LEVEL,
        cells: int | None = None,
        max_rows: int = 300,
        seed: int | None = None,
        **options: Unpack[CalibrateKeywords],
    ) -> Calibration:
        """Find the factor on the standard deviations with which intervals by this method have the coverage they claim.

        Agents hold out rows in five folds (twenty where they have fewer than 100 rows on average); the fleet predicts
        them from the rest, with the present theta, and adds up how far off the predictions are. The fleet keeps the
        result as `calibration`: `predict` by this method with the same eta and n_neighbours multiplies the standard
        deviations of observations and of f by its `factor`. Predictions by other methods stay as they are, and warn. A
        training, new observations or another theta end the calibration.

        holdout: "rows" are drawn at random: the factor is for places among the data. "blocks" are cells of the fleet's
            box, the same for all agents, so that nobody observes them: the factor is for gaps. With "both" there are
            two factors, and a query gets one between them according to its standard deviation.
        level: the coverage that intervals should have.
        cells: how many cells the box has for blocks, by default 16 per agent and at least 100. Choose them as large as
            the gaps that you will predict in.
        max_rows: how many rows an agent holds out at most, of each kind. Their inputs are sent to all agents, unless
            the fleet has private="rows": then it predicts at 1,000 places all over its box, and every agent carries the
            answers over to its own rows. Factors are then equal, or up to some 10% larger.
        seed: draws what is held out, and the samples of grBCM; by default the fleet's.
        {options}

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(400, seed=1)
        >>> shards, theta = partition(field.inputs, field.observations, agents=4), [1.2, 0.3, 1.3, 0.1]
        >>> fleet = Fleet(shards, theta=theta, kernel="se")
        >>> knot = fleet.calibrate("dec-poe", holdout="rows").knots[0]
        >>> knot.rows, knot.before < 0.95, knot.factor > 1.0
        (400, True, True)
        >>> bool(fleet.predict([[0.5, 0.5]], "dec-poe").factor[0] == knot.factor)
        True
        """
        row, given = predictor_of(method), given_in(options, CalibrateKeywords, "calibrate")
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
        refuse_small_groups(row, self.private, how.min_rows)
        snapshot = replace(self.snapshot(), moments=None, trained=())  # moments include the rows that are held out
        calibration = self._backend.calibrate(snapshot, row, how, holding)
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
        """Predict on a grid over two inputs; return an xarray Dataset with coordinates and units.

        Its variables are named after the target: sst (the mean), sst_std (the standard deviation of f) and
        sst_std_observed (that of an observation). n_agents is how many agents took part, and cell_status is 0 where a
        cell is known, 1 where it is no better known than the prior, 2 where it is left out, and 3 where it is masked.
        Cells that are left out or masked are NaN.

        grid: how many points along the two inputs.
        box: the lowest first and second input, then the highest; by default those of the data.
        at: a value for each other input, {"depth": 5}. That of the time is at_time, by default now.
        within: cells farther than this many length-scales from all observations are left out; inf keeps all of them.
            Observations count that are at most one length-scale of the time away.
        mask: which cells to predict: a function of points (T, D), an array over the second and the first input, or a
            DataArray over both, whose nearest cell counts. 0, False, NaN and places outside leave a cell out.
        method, observed, agent, options: as for `predict`.

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(120, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
        >>> sea = fleet.map((5, 4), mask=lambda points: points[:, 0] > 0.6)
        >>> dict(sea["y"].sizes), int((sea["cell_status"] == 3).sum())
        ({'x2': 4, 'x1': 5}, 8)
        """
        snapshot = self.snapshot(options.get("theta"))
        layout = grid_of(snapshot, grid, box, at, options.pop("at_time", None))
        check_names(layout, self.target)
        cells = layout.cells
        chosen, status = chosen_cells(snapshot, layout, within, mask)
        answer = self.predict(cells[chosen], method, observed=observed, agent=agent, **options)
        columns = {
            "mean": answer.mean,
            "std": answer.std,
            "std_observed": answer.std_observed,
            N_AGENTS: np.asarray(answer.participants.sum(axis=0)),
        }
        facts = {"method": answer.method, "status": answer.status, "asked_agent": self.labels[answer.asked]}
        return map_dataset(snapshot, layout, columns, on_all_cells(status, chosen, answer.prior_only), chosen, facts)

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
        **options: Unpack[ScoreKeywords],
    ) -> Scores:
        """Score the fleet's predictions of observations that it has not seen.

        X, y: (T, D) and (T,), an array or a data frame with the inputs, times as in `predict`. Or X alone, a list of
            (X_i, y_i) or (X_i, y_i, s_i), one per agent: then `rows_of` of the result has the scores of each agent's
            rows. A fleet with private="rows" refuses such lists, and inputs of its own rows: they would be queries,
            which all agents see.
        s: (T,) known standard deviations of these observations, in addition to sigma_eps.
        method, options: as in `predict`; the variance is that of an observation.
        agent: who asks; without it every agent gets the answer, and `answers` of the result has the scores of each.
        level: of the intervals.

        The MSLL compares with the mean and the variance of the fleet's own observations.

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(400, seed=1)
        >>> fleet = Fleet(partition(field.inputs[:300], field.observations[:300], agents=4), theta=[1.2, 0.3, 1.3, 0.1])
        >>> scores = fleet.score(field.inputs[300:], field.observations[300:])
        >>> scores.rows, scores.rmse < 0.2, scores.msll < -1.0, len(scores.answers)
        (100, True, True, 4)
        """
        given_in(options, ScoreKeywords, "score")
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
        """Predict each fold of the rows from all others, and score the predictions.

        folds: how many; by default 5, or with split="agent" one per agent.
        split: what is hidden together. "random": rows of every agent, for the accuracy among the data. "agent": all
            rows of an agent. "block": cells of the fleet's box, the same for all agents, so that nobody observes them,
            for the accuracy in gaps. An agent without other rows still relays.
        method, options: as in `predict`. Each agent's rows are compared with its own answer; those of an agent without
            other rows with the answer of the first agent with the same noise.
        train: True trains again for every fold, as the fleet was trained (by `last_fit.method`, with its bounds and
            priors, from its theta if it has one); a dictionary has other options of `Fleet.train`. False uses the
            present theta, which depends a little on the hidden rows, and takes a fraction of the time.
        cells: with split="block", how many cells the box has, by default 16 per agent and at least 100.
        level: of the intervals.  seed: draws what is hidden; by default the fleet's.
        progress: True for a bar on the terminal, or a callable that gets a `Progress`.
        kept: keeps finished folds, so that an interrupted call continues where it was.

        A fleet with private="rows" refuses: the inputs of hidden rows are queries, which all agents see. The fleet
        stays as it is, and its calibration, which is from all rows, is not used. Rows in files are loaded.

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(200, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
        >>> among = fleet.cross_validate(split="random", method="dec-rbcm", train=False)
        >>> len(among.folds), among.scores.rows, among.means[0].shape == fleet.shards[0][1].shape
        (5, 200, True)
        >>> gaps = fleet.cross_validate(split="block", method="dec-rbcm", train=False)
        >>> gaps.scores.rmse > among.scores.rmse
        True
        """
        refuse_queries(self.private, "cross_validate", "Use `calibrate`, which reports coverage")
        given = given_in(options, FoldKeywords, "cross_validate")
        self._backend.check_here("cross_validate")
        return cross_validate(
            self,
            predictor_of(method).name,
            given,
            folds=folds,
            split=split,
            train=train,
            cells=cells,
            level=level,
            seed=self.seed if seed is None else seed,
            progress=progress,
            kept=kept,
        )
