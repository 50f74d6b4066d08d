"""The options of a model, of its training and of its predictions, each declared once: default, values, help and name.

Python, the command line, fleet.toml and the estimator derive from the fields of `ModelOptions`, `TrainerOptions`,
`PredictionOptions` and `QueryOptions`. None as a default means that the method, or the data, decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, TypedDict, get_args

import numpy as np

from fleetgp.arrays import Array
from fleetgp.consensus.agreements import FEWEST_ROWS, MeanName
from fleetgp.data.times import Moment, duration, units_of_times
from fleetgp.data.transforms import CoordinateRule, CoordinatesName
from fleetgp.declarations import (
    FLAG,
    TEXT,
    Kind,
    checked,
    declared,
    number,
    number_or_text,
    numbers_or_none,
    one_of,
    unchecked,
    whole,
)
from fleetgp.engines.expert import ENGINES
from fleetgp.engines.vecchia.engine import NEIGHBOURS
from fleetgp.errors import InputError, shortened
from fleetgp.io.tables import Missing
from fleetgp.validation import check_number

NestedSolver = Literal["l-bfgs", "gradient-descent"]
Consensus = Literal["tree", "average"]
Eta = float | Literal["auto"]
AUTO: Literal["auto"] = "auto"
Beta = Literal["relative", "paper"]

#: The paper's "se" is infinitely smooth, and most measured fields are not.
KERNEL: Final = "matern32"
#: Along time: fields that were measured change abruptly, and the next day is predicted best so (docs/time.md).
KERNEL_OF_TIME: Final = "matern12"
#: dec-full-gp works with the moments of the data, and only the squared exponential has them. It is also the paper's.
KERNEL_OF_MOMENTS: Final = "se"


def default_kernel(
    *methods: object,
    preset: str | None = None,
    inputs: Sequence[str] | None = None,
    time: str | None = None,
    rule: CoordinateRule | None = None,
) -> str:
    """Return the kernel of a model for which none was chosen.

    methods: of training and prediction, if they are known.  inputs: their names.  time: the one that is the time.
    rule: of the coordinates; on the sphere longitude and latitude have one length-scale.

    >>> default_kernel(), default_kernel("dec-full-gp"), default_kernel(preset="paper")
    ('matern32', 'se', 'se')
    >>> default_kernel(inputs=["lon", "lat", "day"], time="day")
    'matern32(lon, lat) * matern12(day)'
    >>> default_kernel(inputs=["lon", "lat", "m"], time="m", rule=CoordinateRule("sphere", 0, 1))
    'iso-matern32(lon, lat) * matern12(m)'
    """
    if "dec-full-gp" in methods or preset == "paper":
        return KERNEL_OF_MOMENTS
    others = [name for name in inputs or () if name != time]
    globe = [] if inputs is None or rule is None or rule.name != "sphere" else [rule.longitude, rule.latitude]
    together = [inputs[d] for d in globe] if inputs is not None else []
    others = [name for name in others if name not in together]
    parts = [(f"iso-{KERNEL}", together), (KERNEL, others), (KERNEL_OF_TIME, [] if time is None else [time])]
    used = [(kernel, names) for kernel, names in parts if names]
    if [kernel for kernel, _ in used] in ([], [KERNEL], [KERNEL_OF_TIME]):
        return KERNEL
    return " * ".join(f"{kernel}({', '.join(map(_in_expression, names))})" for kernel, names in used)


def _in_expression(name: str) -> str:
    """Return the name of an input as kernels have it."""
    return name if re.fullmatch(r"[\w.\-]+", name) else f"'{name}'" if '"' in name else f'"{name}"'


def check_noise_floor(name: str, value: Any) -> float:
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool) or not 0 <= value < 1:
        raise InputError(
            f"{name}: expected a number of at least 0 and below 1, got {shortened(value)}: it is in units of the "
            "observations' standard deviation; 0 switches it off"
        )
    return float(value)


def check_eta(name: str, eta: Any) -> Eta:
    """Return a valid eta: a number from 0 to 1, or "auto"."""
    if isinstance(eta, str) and eta != AUTO:
        raise InputError(f'{name} must be a number of at least 0 and at most 1, or "auto", got {shortened(eta)}')
    if isinstance(eta, str):
        return AUTO
    check_number(name, eta, least=0.0, most=1.0)
    return float(eta)


ENGINE = one_of(ENGINES)
#: Values that the function which uses them checks.
GIVEN = Kind(Any, unchecked, "")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model; `Fleet` explains these options."""

    kernel: str | None = declared(
        None,
        Kind(str, lambda _, value: value, "a name or an expression"),
        "se (the smoothest), matern52, matern32, matern12 (the roughest), rq; of them, with periodic and linear, "
        'an expression over the inputs: "matern32(lon, lat) * matern12(day)"; or auto: the best.',
        otherwise="matern32, with matern12 along the time; se to train by dec-full-gp",
    )
    time: str | None = declared(
        None,
        TEXT,
        "The input that is the time: it has a kernel of its own, and questions without it are about now.",
        otherwise="the only input with dates",
    )
    normalize: bool = declared(
        True, FLAG, "Centre and scale the observations by the fleet's mean and standard deviation."
    )
    mean: MeanName = declared(
        "zero", one_of(get_args(MeanName)), "The mean function: zero, constant, or linear in the inputs."
    )
    coordinates: CoordinatesName = declared(
        "as-given",
        one_of(get_args(CoordinatesName)),
        "as-given, scaled; for inputs called lon and lat (or longitude, latitude) kilometres, or sphere.",
    )
    noise: Literal["agents"] | None = declared(
        None, one_of(("agents",)), "agents: a sigma_eps of its own for each agent.", otherwise="one"
    )
    robust: bool = declared(False, FLAG, "Weigh outliers down: a row counts as at most 2.5 standard deviations off.")
    private: Literal["rows"] | None = declared(
        None, one_of(("rows",)), "rows: refuse methods that send a row or its inputs, here and in later commands."
    )


#: What stays of forgotten rows.
Keep = Literal["summary", "nothing"]


def check_window(name: str, value: Any) -> float | str:
    """Return a valid window: a text, which is read with the unit of the time, or a number above 0."""
    if isinstance(value, str):
        duration(value, units_of_times("days"), name)
        return value
    check_number(name, value, above=0.0)
    return float(value)


@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """Which rows an agent forgets, after every observation, and what stays of them."""

    window: float | str | None = declared(
        None,
        Kind(str, check_window, 'a duration such as "3 days", or a number', number_or_text),
        'Forget rows that are this much older than the newest of all: "3 days", or a number in the unit of the time.',
        otherwise="none is too old",
    )
    max_rows: int | None = declared(
        None, whole(least=5), "Forget the oldest rows of an agent with more than this.", otherwise="none are too many"
    )
    keep: Keep = declared(
        "summary",
        one_of(get_args(Keep)),
        "What stays of forgotten rows: summary, coarse groups for dec-summary; or nothing.",
    )


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Which rows of a file count. `fleetgp.io.Reading` has how the file is read."""

    missing: Missing = declared("refuse", one_of(get_args(Missing)), "Rows with missing values: refuse or drop.")
    fill: Sequence[float] | None = declared(
        None,
        Kind(list[str], unchecked, "numbers", numbers_or_none),
        "Values that mean missing, -9999 for example; none if all values are real.",
    )


@dataclass(frozen=True, kw_only=True)
class TrainerOptions:
    """How a model is trained."""

    rounds: int = declared(
        2000, whole(least=1), "Stop after this many rounds.", detail="With `tol=0` exactly this many."
    )
    tol: float = declared(
        1e-5,
        number(least=0.0),
        "Stop when the agents agree and stand still to this tolerance.",
        detail="In log theta, and at a stationary point.",
    )
    seconds: float | None = declared(
        None,
        number(above=0.0),
        "Stop after this many seconds of training, with the best so far.",
        detail='`status` is then "time limit".',
    )
    rho: float | None = declared(None, number(above=0.0), "The ADMM penalty.", otherwise="from measured curvature")
    kappa: float | None = declared(
        None,
        number(above=0.0),
        "Stiffness of the steps of dec-apx-gp and dec-gapx-gp.",
        otherwise="from measured curvature",
    )
    lipschitz: float | None = declared(
        None,
        number(above=0.0),
        "Stiffness of the steps of apx-gp and gapx-gp.",
        otherwise="from measured curvature",
        toml=False,
    )
    nested: NestedSolver | None = declared(
        None,
        one_of(get_args(NestedSolver)),
        "Inner solver of c-gp and dec-c-gp: l-bfgs or gradient-descent.",
        otherwise="l-bfgs",
    )
    step: float | None = declared(None, number(above=0.0), "Step size of nested gradient descent.", otherwise="1e-5")
    nested_iterations: int | None = declared(
        None, whole(least=1), "Inner iterations of c-gp and dec-c-gp.", otherwise="200; 10 of gradient descent"
    )
    noise_floor: float = declared(
        1e-3,
        Kind(float, check_noise_floor, "a number of at least 0 and below 1"),
        "The smallest sigma_eps, in units of the observations' standard deviation; 0 for none.",
    )
    engine: str = declared(
        "auto",
        ENGINE,
        "auto, dense, moments or vecchia.",
        detail="auto takes for each agent the cheaper exact engine and, beyond 1,500 points, vecchia if none is exact.",
    )
    n_neighbours: int = declared(
        NEIGHBOURS,
        whole(least=1),
        "Engine vecchia: on how many of its nearest earlier observations each one is conditioned.",
    )

    def __post_init__(self) -> None:
        checked(TrainerOptions, {one.name: getattr(self, one.name) for one in fields(TrainerOptions)})


@dataclass(frozen=True, kw_only=True)
class ThetaOptions:
    """Hyperparameters as a caller gives them, in natural units; the functions that use them check them."""

    theta: Sequence[float] | Array | None = declared(
        None,
        GIVEN,
        "Hyperparameters in natural units.",
        otherwise="those of the fleet; after a training the agents agree on the mean of their estimates",
    )
    theta0: Sequence[float] | Array | None = declared(
        None,
        GIVEN,
        "Where to start, (P,), or several starts, (S, P), of which the best total likelihood wins.",
        detail="Without any, agents with more than 1,500 observations train on samples first, and on all "
        "observations from the best start: `sample` of the result.",
        otherwise="three starts from the size of the data",
    )
    bounds: Mapping[str, tuple[float | None, float | None]] | None = declared(
        None,
        GIVEN,
        'The lowest and the highest value of hyperparameters, by name: {"l_lon": (0.1, 5), "noise": (None, 1)}; '
        "None is no bound.",
        detail="The names are l_ with an input's name or, where inputs have none, its number, sigma_f and "
        'sigma_eps; "length" stands for all length-scales, "signal" and "noise" for the two sigmas. In the units '
        "of the data, also with normalize. `at_bounds` of the result says who ended at one.",
    )
    priors: Mapping[str, tuple[float, float]] | None = declared(
        None,
        GIVEN,
        'Log-normal, the median and a factor: with {"noise": (0.1, 2)} sigma_eps is assumed to lie between 0.05 '
        "and 0.2 with a probability of 68%.",
        detail="They count once for the fleet: the result is the posterior mode of log theta.",
    )
    fixed: Mapping[str, float] | None = declared(None, GIVEN, 'Values that stay, by name: {"noise": 0.1}.')
    seed: int | None = declared(None, GIVEN, "Draws the samples of the g- methods.", otherwise="the fleet's")


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """When a question is about; the input that is the time is then not among the queries."""

    at_time: Moment | None = declared(
        None,
        Kind(str, unchecked, "a date or a number", number_or_text),
        "For points without the time input: the time that the question is about, 2021-01-05 or 2021-01-05T12:00 (UTC).",
        detail="Also a datetime, or a number in the unit of this input. After the newest row it is a forecast.",
        otherwise="now",
        toml=False,
    )


@dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """How a question is answered: settings that every agent knows."""

    consensus: Consensus = declared(
        "tree",
        one_of(get_args(Consensus)),
        "With dec-: tree (exact sums along the spanning tree) or average (the paper's).",
        detail="The tree takes as many rounds as twice the graph's radius; averages are the paper's recursions "
        "over neighbours (average consensus, JOR, the power method, DALE), which end at a tolerance.",
    )
    rounds: int = declared(
        20_000,
        whole(least=1),
        "With consensus average: stop after this many rounds.",
        detail="`status` says which came first, this or tol.",
    )
    tol: float = declared(
        1e-6,
        number(above=0.0),
        "With consensus average: stop when the agents differ by less, relatively.",
        detail="For NPAE relative to what the agents explain of the prior variance.",
    )
    eta: Eta = declared(
        1e-3,
        Kind(str, check_eta, 'a number from 0 to 1, or "auto"', number_or_text),
        "With dec-nn-: the share of the variance an agent must explain to take part, "
        "or auto: half of what the best agent knows.",
        detail="It takes part in a query if k_i*' C_i^-1 k_i* is at least eta sigma_f^2; with auto, if it knows at "
        "least half as much as the best agent, in nats: few agents, also where length-scales are long and all agents "
        "are correlated.",
    )
    beta: Beta = declared(
        "relative",
        one_of(get_args(Beta)),
        "The weights of agents with grBCM.",
        cli=False,
        toml=False,
        detail="relative: d_i / sqrt(sum_j d_j^2), where d_i is the information of an agent's data beyond the "
        "samples, in nats: all agents count alike. paper: 1 for the first agent that takes part, d_i for the "
        "others: the answer depends on the order of the agents.",
    )
    seed: int = declared(
        0,
        whole(least=0),
        "Draws the samples of grBCM, per agent, and the start of dec-npae-star.",
        otherwise="the fleet's",
        cli=False,
        toml=False,
    )
    engine: str = declared(
        "auto",
        ENGINE,
        "auto, dense, moments or vecchia.",
        detail="With dense NPAE sends the agents' inputs, otherwise a vector per query and no input, even where the "
        "inputs would be shorter.",
    )
    n_neighbours: int = declared(
        NEIGHBOURS,
        whole(least=1),
        "Engine vecchia: as in training.",
        detail="Each query is conditioned on 4 times as many observations of an agent, the nearest ones.",
    )
    n_nearest: int = declared(
        120,
        whole(least=1),
        "dec-nearest: how many observations of the whole fleet answer a query, the nearest ones.",
    )
    min_rows: int = declared(
        FEWEST_ROWS,
        whole(least=1),
        "dec-summary: how many rows a group that is sent describes at least.",
        detail="An agent with fewer rows sends nothing about them. Rows in a group that was sent stay together, with "
        "any later min_rows and budget: to compare options, make a fleet for each.",
    )
    budget: float = declared(
        100_000.0,
        number(above=0.0),
        "dec-summary: bytes of groups that may cross each link.",
        detail="Groups have min_rows rows, or 1.4, 2, 2.8, 4, .. times as many, until they fit.",
    )
    local: bool = declared(
        False,
        FLAG,
        "dec-summary: each agent answers alone, from its own rows and the groups of the others, without a message.",
    )

    def changed(self, given: Mapping[str, Any]) -> PredictionOptions:
        """Return these options with those given that are not None, checked.

        >>> options = PredictionOptions(seed=3).changed({"eta": 0.1, "tol": None})
        >>> options.eta, options.tol, options.seed
        (0.1, 1e-06, 3)
        """
        return replace(self, **checked(PredictionOptions, {k: v for k, v in given.items() if v is not None}))


# ---- keywords of a fleet's methods, for type checkers: tests compare names and types with the declarations ---------


class _Engine(TypedDict, total=False):
    engine: str
    n_neighbours: int | None


class _Seed(TypedDict, total=False):
    seed: int | None


class _Selection(TypedDict, total=False):
    eta: Eta | None
    n_nearest: int | None
    min_rows: int | None
    budget: float | None


class _Local(TypedDict, total=False):
    local: bool | None


class _Averages(TypedDict, total=False):
    consensus: Consensus | None
    rounds: int | None
    tol: float | None


class _Weights(TypedDict, total=False):
    beta: Beta | None


class _Time(TypedDict, total=False):
    at_time: Moment | None


class TrainKeywords(_Engine, _Seed, total=False):
    """Of `Fleet.train`."""

    theta0: Sequence[float] | Array | None
    rounds: int | None
    tol: float | None
    seconds: float | None
    bounds: Mapping[str, tuple[float | None, float | None]] | None
    priors: Mapping[str, tuple[float, float]] | None
    fixed: Mapping[str, float] | None
    noise_floor: float | None
    rho: float | None
    kappa: float | None
    lipschitz: float | None
    nested: NestedSolver | None
    step: float | None
    nested_iterations: int | None


class _Model(_Engine, _Selection, total=False):
    theta: Sequence[float] | Array | None


class SampleKeywords(_Model, _Time):
    """Of `Fleet.sample`, whose seed is of the draws."""


class PosteriorKeywords(_Model, _Seed, _Time):
    """Of `Fleet.joint`, `gradient` and `suggest`."""


class FoldKeywords(_Model, _Averages, _Weights):
    """Of `Fleet.cross_validate`, whose seed deals the folds."""


class ScoreKeywords(FoldKeywords, _Seed, _Local):
    """Of `Fleet.score`, whose observations have their own times."""


class PredictKeywords(ScoreKeywords, _Time):
    """Of `Fleet.predict`."""


class CalibrateKeywords(_Engine, _Selection, _Averages):
    """Of `Fleet.calibrate`, whose seed is also of the rows that are held out."""


class ConditionedPosteriorKeywords(_Selection, _Seed, _Time):
    """Of `ConditionedFleet.joint` and `gradient`."""


class ConditionedKeywords(ConditionedPosteriorKeywords, _Averages, _Weights, _Local):
    """Of `ConditionedFleet.predict`."""
