"""`verify`: identities that must hold, checked on a fleet's own data.

A verification looks at a fleet's own data and model, of which large parts are sampled (`Subject`), and answers with a
row for each check.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import scipy

from fleetgp.arrays import Array, BoolArray
from fleetgp.consensus.agreements import augmented, communication_data
from fleetgp.data.dataset import Dataset, InMemory
from fleetgp.data.partition import drawn
from fleetgp.data.transforms import View
from fleetgp.engines.base import Evaluation
from fleetgp.engines.dense import reference
from fleetgp.engines.expert import Expert, FleetExpert
from fleetgp.errors import FleetGPWarning, InputError, NumericalError, shortened, unknown_name
from fleetgp.fleet import ConditionedFleet, Fleet
from fleetgp.fleet.predictor import agree_on_model
from fleetgp.fleet.privacy import kinds_of_prediction, predictor_of, refuse_private
from fleetgp.fleet.snapshot import ModelSnapshot
from fleetgp.graph import Graph
from fleetgp.io.formats import pandas_for
from fleetgp.model.hyperparameters import Hyperparameters
from fleetgp.model.observations import Observations
from fleetgp.network import InProcess
from fleetgp.network.ledger import Ledger
from fleetgp.prediction import Prediction, PredictionOptions, prediction_method
from fleetgp.prediction.conditioned import model_units
from fleetgp.prediction.methods import PredictionMethod
from fleetgp.training import Fit, training_method
from fleetgp.training.objective import Objective, reweighed_experts
from fleetgp.validation import check_number, check_whole

Verdict = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True)
class Check:
    """name: what was checked.  measured, limit: it passes if what was measured is at most the limit; None where it was
    not applicable.  meaning: what it says, in one sentence.  telling: whether that is worth reading if it passed, too.

    >>> Check.of("agents agree", 0.1, 0.01, "They differ.").verdict
    'failed'
    """

    name: str
    verdict: Verdict
    measured: float | None
    limit: float | None
    meaning: str
    telling: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, name: str, measured: float, limit: float, meaning: str, *, telling: bool = False) -> Check:
        """What is no number fails."""
        verdict: Verdict = "passed" if measured <= limit else "failed"
        return cls(name, verdict, float(measured), float(limit), meaning, telling)

    @property
    def facts(self) -> dict[str, Any]:
        """For programs."""
        return {name: value for name, value in asdict(self).items() if name != "telling"}

    @classmethod
    def idle(cls, name: str, why: str) -> Check:
        """Not applicable, and why."""
        return cls(name, "not applicable", None, None, why)


@dataclass(frozen=True)
class Verification:
    """checks: what was checked, each with a verdict.  sampled: sentences about what they were made on. Print it.

    >>> from fleetgp import Fleet, partition, synthetic_field, verify
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=2), theta=[1.2, 0.3, 1.3, 0.1])
    >>> result = verify(fleet, methods=["dec-rbcm"])
    >>> result["dec-rbcm: agents agree"].verdict, result["training converged"].verdict
    ('passed', 'not applicable')
    >>> result.to_frame().columns.tolist()
    ['name', 'verdict', 'measured', 'limit', 'meaning']
    """

    checks: tuple[Check, ...]
    sampled: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether none has failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that have."""
        return tuple(check for check in self.checks if check.verdict == "failed")

    def __getitem__(self, name: str) -> Check:
        """A check by its name; an InputError that has all of them for another."""
        for check in self.checks:
            if isinstance(name, str) and check.name == name:
                return check
        raise unknown_name("check", name, [check.name for check in self.checks])

    @property
    def facts(self) -> dict[str, Any]:
        """For programs: plain numbers, texts and lists."""
        return {
            "passed": self.passed,
            "checks": [check.facts for check in self.checks],
            "sampled": list(self.sampled),
        }

    def to_frame(self) -> Any:
        """The checks as a pandas DataFrame, with the columns name, verdict, measured, limit and meaning."""
        return pandas_for("to_frame").DataFrame([check.facts for check in self.checks])

    def __str__(self) -> str:
        rows = [
            [check.name, check.verdict, two_digits(check.measured), two_digits(check.limit)] for check in self.checks
        ]
        table = aligned(["check", "verdict", "measured", "at most"], rows, left=2)
        return "\n".join([table, "", *self.sentences])

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that is to be said beside the table, the last line of how many passed."""
        shown = [check for check in self.checks if check.verdict != "passed" or check.telling]
        return (*(f"{check.name}: {check.meaning}" for check in shown), *self.sampled, self._counts)

    @property
    def _counts(self) -> str:
        """How many there are of each verdict, in a sentence."""
        number = {word: sum(check.verdict == word for check in self.checks) for word in get_args(Verdict)}
        idle = f", {number['not applicable']} not applicable" if number["not applicable"] else ""
        if self.failed:
            return f"{number['failed']} of {len(self.checks)} checks failed, {number['passed']} passed{idle}."
        return f"All {number['passed']} checks passed{idle}."


def two_digits(number: float | None) -> str:
    """A number for people.

    >>> two_digits(None), two_digits(0.0), two_digits(1.23456e-9), two_digits(0.05)
    ('', '0', '1.2e-09', '0.05')
    """
    return "" if number is None else f"{number:.2g}"


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns below each other; the first `left` ones begin at the left, the others end at the right.

    >>> print(aligned(["method", "bytes"], [["dec-poe", "12"], ["dec-npae", "3456"]]))
    method    bytes
    dec-poe      12
    dec-npae   3456
    """
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[k]) for row in table) for k in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
    return "\n".join(line.rstrip() for line in lines)


#: Rows of all agents together on which answers are compared, and the fewest of an agent.
MOST_ROWS, FEWEST_ROWS = 3000, 20
#: Rows of all agents together beyond which no likelihood of them all is evaluated.
MOST_LIKELY = 20_000
#: Points at which answers are compared.
QUERIES = 40
#: In the logarithm of a hyperparameter: agents of a training that has converged differ by less, by default a hundred
#: times.
AGREED = 1e-3
#: In standard errors of theta, by the curvature of the likelihood: half the square of it is what is left to gain, in
#: nats.
STATIONARY = 0.1
#: Steps of differences in log theta: of fourth order for gradients, of first order for curvature.
STEP, CURVED = 5e-3, 1e-4
#: Of a gradient against differences, relative to the largest entry, or to 1 nat.
SLOPE = 1e-4
#: Of an engine against the formulas: likelihoods in nats per row, means in sigma_f, variances in its square.
EXACT, APPROXIMATE = 1e-6, 0.05
#: Rows of an agent that gradients are of.
SOME_ROWS = 500
#: Rows of an agent that engines are compared on, and for how many agents.
FEW_ROWS, FEW_AGENTS = 200, 5
#: Rows among these at which posteriors are compared.
QUERIED = 20
#: Of a likelihood that is computed again, relative.
AGAIN = 1e-6
#: Of agents' answers to the same query, in deviations: along the tree they are the same bits.
SAME_ANSWER = 1e-9
#: Of a method and its central twin: means in deviations, variances relative.
TWIN = 1e-6
#: A budget for groups that is none.
UNLIMITED = 1e18
#: Of variances against the prior, relative: rounding.
ROUNDING = 1e-9
#: Of the same answer computed again.
REPEATED = 1e-12
#: Of intervals of these levels; the coverage of sound models is off by as much, and by three standard errors.
LEVELS, MISFIT, ERRORS = (0.5, 0.8, 0.95), 0.05, 3.0
#: Fewer hidden rows say nothing about coverage.
FEWEST_HIDDEN = 20


def verify(fleet: Fleet, *, hold: float = 0.1, seed: int = 0, methods: Sequence[str] | None = None) -> Verification:
    """Check on the fleet's own data that what must be true is true; nothing of the fleet is changed.

    hold: the share of each agent's rows that is hidden, to see whether intervals cover what they promise. Theta knows
        them, the predictions do not.
    seed: draws these rows, and samples of large data.
    methods: of prediction; without them dec-summary, after a training by dec-full-gp that, and the one that the fleet
        is calibrated for.

    Checked are: the training converged, agents agree, theta is a stationary point of the likelihood and not at a bound,
    the likelihood is the same when computed again, gradients match differences, engines agree with the formulas;
    of each method: agents agree, it equals its central twin, variances lie between 0 and the prior, the answer is the
    same again, intervals of 50, 80 and 95 % cover as many hidden rows, by 5 % and three standard errors; and nothing
    was sent that docs/privacy.md does not allow.

    All data are looked at in this process, as a central node would. Answers are compared with up to 3,000 rows, and
    likelihoods of all rows are computed up to 20,000: it takes seconds, or a minute where there are many agents.

    >>> import fleetgp as fg
    >>> field = fg.synthetic_field(120, seed=1)
    >>> fleet = fg.Fleet(fg.partition(field.inputs, field.observations, agents=2), theta=[1.2, 0.3, 1.3, 0.1])
    >>> fg.verify(fleet, methods=["dec-rbcm"])["dec-rbcm: equals its central twin"].verdict
    'passed'
    """
    if not isinstance(fleet, Fleet):
        raise InputError(f"verify: expected a Fleet, got {type(fleet).__name__}: of a Model give model.fleet")
    check_number("hold", hold, least=0.0, most=0.5)
    check_whole("seed", seed, least=0)
    chosen = check_methods(methods, fleet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FleetGPWarning)  # of points that the data say little about: they are checks
        subject = Subject.of(fleet, chosen, float(hold), int(seed))
        checks = list(training_checks(subject))
        for name in chosen:
            checks += prediction_checks(subject, name)
    return Verification(tuple(checks), subject.sampled)


# ---- what is looked at -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """snapshot: of a sample of the fleet's rows.  methods: of prediction.  hold: the share of rows that is hidden."""

    fleet: Fleet
    snapshot: ModelSnapshot
    methods: tuple[str, ...]
    hold: float
    seed: int

    @classmethod
    def of(cls, fleet: Fleet, methods: tuple[str, ...], hold: float, seed: int) -> Subject:
        whole = replace(fleet.snapshot(), moments=None, trained=())
        sample = _drawn(fleet.data, max(FEWEST_ROWS, MOST_ROWS // fleet.agents), seed)
        return cls(fleet, replace(whole, shards=sample, private=None, sent={}, kept=()), methods, hold, seed)

    def part(self, most: int) -> InMemory:
        """At most so many rows of each agent."""
        return _drawn(self.snapshot.shards, most, self.seed)

    @property
    def sampled(self) -> tuple[str, ...]:
        """What is said of the sample."""
        rows, every = sum(self.snapshot.shards.counts), sum(self.fleet.data.counts)
        of = "all" if rows == every else f"a random sample of {rows:,} of the"
        return (f"Answers were compared at {QUERIES} points, with {of} {every:,} rows.",)

    # ---- answers ---------------------------------------------------------------------------------------------

    def conditioned(self, shards: Dataset | None = None) -> ConditionedFleet:
        """The fleet at its theta, in this process, without anything kept from before, and not calibrated."""
        chosen = self.snapshot.shards if shards is None else shards
        return ConditionedFleet(replace(self.snapshot, shards=chosen, sent={}))

    def alone(self) -> ConditionedFleet:
        """One agent with the rows of all."""
        rows, theta = Observations.joined(self.snapshot.shards), self.snapshot.theta
        one = theta if theta.ndim == 1 else np.exp(np.log(theta).mean(axis=0))
        return ConditionedFleet(
            replace(self.snapshot, shards=InMemory([rows]), theta=one, graph=Graph.path(1), sent={}, kept=())
        )

    @cached_property
    def points(self) -> Array:
        """(T, D) inputs of rows, and places between them."""
        rng, seen = np.random.default_rng(self.seed), Observations.joined(self.snapshot.shards).inputs
        own = seen[rng.choice(len(seen), min(len(seen), QUERIES // 2), replace=False)]
        pairs = seen[rng.integers(0, len(seen), (2, QUERIES - len(own)))]
        return np.concatenate([own, pairs.mean(axis=0)])

    # ---- likelihoods -----------------------------------------------------------------------------------------

    @cached_property
    def model(self) -> tuple[View, Array]:
        """How the model sees the data, and its theta (P,) in its coordinates, for scaled observations."""
        network, row = InProcess(self.snapshot.graph), prediction_method("dec-poe")
        view, theta = agree_on_model(network, self.snapshot, row, PredictionOptions())
        kernel, dimension = self.snapshot.kernel, self.snapshot.shards.dimension
        units = model_units(kernel, view.coordinates, dimension)
        return view, np.asarray(theta / units / np.exp(view.scaling.shift(kernel.units(dimension))))

    def experts(self, shards: Sequence[Observations], engine: str = "auto") -> list[Expert]:
        """Each agent's, of these rows."""
        view, theta = self.model
        kernel = self.snapshot.kernel
        data = [view.of(own) for own in shards]
        experts = [Expert(own, kernel, agent, engine) for agent, own in enumerate(data)]
        if kernel.noise_model.robust:
            return reweighed_experts(experts, np.tile(np.log(theta), (len(experts), 1)))
        return experts

    def trained_on(self) -> list[Observations]:
        """What each agent's likelihood was of: its own rows, and for some methods samples of the others."""
        fit = self.fleet.last_fit
        shards = list(self.fleet.data)
        if fit is None or not training_method(fit.method).augmented:
            return shards
        samples = communication_data(InProcess(self.fleet.graph), shards, self.fleet.seed, central=False)
        return [augmented(shard, agent, samples) for agent, shard in enumerate(shards)]


def _drawn(shards: Dataset, most: int, seed: int) -> InMemory:
    rows = shards.first_rows()
    return InMemory(own.rows(drawn(np.arange(len(own)), most, own.inputs, own.values, seed)) for own in rows)


def check_methods(methods: object, fleet: Fleet) -> tuple[str, ...]:
    """The methods of prediction that are looked at, or one clear error."""
    if methods is None:
        fit, calibration = fleet.last_fit, fleet.calibration
        first = "dec-full-gp" if fit is not None and fit.method == "dec-full-gp" else predictor_of().name
        more = () if calibration is None or calibration.method == first else (calibration.method,)
        return (first, *more)
    if isinstance(methods, str) or not isinstance(methods, Sequence) or not len(methods):
        raise InputError(f"methods: expected a list of prediction methods, got {shortened(methods)}")
    rows = [prediction_method(name) for name in methods]
    for row in rows:
        refuse_private(row, fleet.private, fleet.kernel, rows=min(fleet.data.counts))
    return tuple(row.name for row in rows)


# ---- checks of a training --------------------------------------------------------------------------------------------


#: What was measured, its limit, and what it says; or why there is nothing to check.
Finding = tuple[float, float, str] | str


def _check(name: str, finding: Finding) -> Check:
    return Check.idle(name, finding) if isinstance(finding, str) else Check.of(name, *finding)


def training_checks(subject: Subject) -> Iterator[Check]:
    """All of them; those about a training are not applicable where theta was given."""
    fit = subject.fleet.last_fit
    checks: dict[str, Callable[[Subject, Fit], Finding]] = {
        "training converged": _converged,
        "agents agree on theta": _agreement,
        "theta is not at a bound": _bounds,
        "theta is stationary": _stationary,
        "likelihood is the same again": _again,
        "training sent only what it may": _sent_in_training,
    }
    for name, check in checks.items():
        yield _check(name, "Theta was given, not trained." if fit is None else check(subject, fit))
    yield _check("gradients match differences", _gradient(subject))
    yield from _engines(subject)


def _converged(subject: Subject, fit: Fit) -> Finding:
    if fit.status == "converged":
        return 0.0, 0.0, "The stopping rule held."
    return 1.0, 0.0, f"It ended by {fit.status}: train on from it."


def _agreement(subject: Subject, fit: Fit) -> Finding:
    return fit.disagreement, AGREED, "The largest difference between two agents in the logarithm of a hyperparameter."


def _bounds(subject: Subject, fit: Fit) -> Finding:
    if not fit.at_bounds:
        return 0.0, 0.0, "All are inside."
    names = ", ".join(fit.at_bounds)
    return float(len(fit.at_bounds)), 0.0, f"{names} stands at a bound: the best value may lie beyond it."


def _sent_in_training(subject: Subject, fit: Fit) -> Finding:
    return _sent(fit.method, training_method(fit.method).kinds, fit.ledger)


def _sent(method: str, allowed: Sequence[str], ledger: Ledger) -> Finding:
    """How many kinds of content a ledger has that the method may not send."""
    extra = [kind for kind in ledger.kinds if kind not in allowed]
    meaning = f"{method} may send {', '.join(allowed)}" + (f", and sent {', '.join(extra)}." if extra else ".")
    return float(len(extra)), 0.0, meaning


# ---- the optimum ---------------------------------------------------------------------------------------------------


def _stationary(subject: Subject, fit: Fit) -> Finding:
    if why := _too_large(subject, fit):
        return why
    view, theta = subject.model
    units = subject.snapshot.kernel.units(subject.snapshot.shards.dimension)
    shift = view.scaling.shift(units) + view.coordinates.shift(units)
    experts: list[Expert]
    if fit.moments is not None:
        experts = [FleetExpert(fit.moments)]
    elif training_method(fit.method).meet == "pool":
        experts = subject.experts([Observations.joined(subject.fleet.data)])
    else:
        experts = subject.experts(subject.trained_on())
    objective = Objective(experts, fit.known.prior.shifted(-shift), 1.0 / len(experts))
    x, free = np.log(theta), ~_held(fit)
    slope = _slope(objective, x)
    columns = [(_slope(objective, x + CURVED * e) - _slope(objective, x - CURVED * e)) for e in np.eye(len(x))[free]]
    curvature = np.array(columns)[:, free] / (2.0 * CURVED)
    meaning = "How far theta is from the optimum of the rows that are there now, in its own standard errors."
    return _distance(slope[free], 0.5 * (curvature + curvature.T)), STATIONARY, meaning


def _too_large(subject: Subject, fit: Fit) -> str:
    rows, pool = sum(subject.fleet.data.counts), training_method(fit.method).meet == "pool"
    if fit.moments is not None:
        return ""
    if not subject.fleet.data.in_memory:
        return "The rows are in files."
    most = MOST_ROWS if pool else MOST_LIKELY
    return f"There are {rows:,} rows: it is checked up to {most:,}." if rows > most else ""


def _held(fit: Fit) -> BoolArray:
    """(P,) which hyperparameters are fixed, or stand at a bound or the floor."""
    held = np.zeros(fit.thetas.shape[1], dtype=bool)
    if fit.known.names:
        low, high = fit.known.touched(fit.thetas)
        held |= low | high | fit.known.bounds.fixed
    if fit.floored:
        held[-fit.noises :] |= np.asarray((fit.thetas[:, -fit.noises :] <= 1.01 * fit.noise_floor).any(axis=0))
    return held


def _slope(objective: Objective, x: Array) -> Array:
    """The gradient of the fleet's likelihood at log theta, (P,)."""
    return np.asarray(objective(np.tile(x, (len(objective.experts), 1))).gradient.sum(axis=0))


def _distance(slope: Array, curvature: Array) -> float:
    """sqrt(g'H^-1 g); infinite where H is not positive: no minimum.

    >>> _distance(np.array([2.0]), np.array([[4.0]])), _distance(np.array([2.0]), np.array([[-4.0]]))
    (1.0, inf)
    """
    if not len(slope):
        return 0.0
    if not np.isfinite(curvature).all() or np.linalg.eigvalsh(curvature)[0] <= 0.0:
        return np.inf
    return float(np.sqrt(slope @ np.linalg.solve(curvature, slope)))


def _again(subject: Subject, fit: Fit) -> Finding:
    if fit.moments is not None or training_method(fit.method).meet == "pool":
        return "The likelihood is of all data in one place."
    if "vecchia" in fit.engine:
        return "The likelihood is approximate: it depends on the order of the rows."
    if why := _too_large(subject, fit):
        return why
    experts, (_, theta) = subject.experts(subject.trained_on()), subject.model
    own = np.log(theta) + np.log(fit.thetas) - np.log(fit.theta)  # each agent at its own estimate
    nll = float(Objective(experts)(own).nll.sum())
    meaning = (
        "The likelihood of the rows that are there now, against that of the training: if they differ, train again."
    )
    return abs(nll - fit.nll) / max(1.0, abs(fit.nll)), AGAIN, meaning


# ---- likelihoods ---------------------------------------------------------------------------------------------------


def _gradient(subject: Subject) -> Finding:
    experts, (_, theta) = subject.experts(subject.part(SOME_ROWS)), subject.model
    worst = max((_slope_error(expert.evaluate, np.log(theta)) for expert in experts), default=0.0)
    return worst, SLOPE, "Every agent's gradient of its likelihood against differences of it, the largest error."


def _slope_error(evaluate: Callable[[Array], Evaluation], x: Array) -> float:
    def differences(step: float) -> Array:
        return np.array([evaluate(x + step * e).nll - evaluate(x - step * e).nll for e in np.eye(len(x))])

    try:
        gradient, near, far = evaluate(x).gradient, differences(STEP), differences(2.0 * STEP)
    except NumericalError:
        return np.inf
    slope = (8.0 * near - far) / (12.0 * STEP)
    return float(np.abs(gradient - slope).max() / max(1.0, np.abs(gradient).max()))


def _engines(subject: Subject) -> Iterator[Check]:
    fit, (_, theta) = subject.fleet.last_fit, subject.model
    used = sorted({"dense"} if fit is None else set(fit.engine))
    parts = sorted(subject.part(FEW_ROWS), key=lambda own: -len(own))[:FEW_AGENTS]
    for engine in used:
        worst = max(_engine_error(expert, theta) for expert in subject.experts(parts, engine))
        limit = APPROXIMATE if engine == "vecchia" else EXACT
        accuracy = "an approximation" if engine == "vecchia" else "exact"
        yield Check.of(
            f"engine {engine} agrees with the formulas",
            worst,
            limit,
            f"Likelihood, mean and variance of up to {FEW_ROWS} rows of {len(parts)} agents; the engine is {accuracy}.",
        )


def _engine_error(expert: Expert, theta: Array) -> float:
    """The largest difference to the formulas as they read."""
    if not expert.size:
        return 0.0
    data, kernel, places = expert.data, expert.kernel, expert.data.inputs[:QUERIED]
    try:
        result = expert.evaluate(np.log(theta))
        mean, variance = expert.condition(theta).mean_and_variance(places)
    except NumericalError:
        return np.inf
    nll, _ = reference.likelihood(data, kernel, np.log(theta), result.jitter)
    errors = [abs(result.nll - nll) / len(data)]
    if result.jitter == 0.0:
        wanted, spread = reference.posterior(data, kernel, theta, places)
        signal = float(kernel.variance(places, Hyperparameters.from_theta(theta)).max())
        errors += [np.abs(mean - wanted).max() / np.sqrt(signal), np.abs(variance - spread).max() / signal]
    return float(max(errors))


# ---- checks of answers -----------------------------------------------------------------------------------------------


def prediction_checks(subject: Subject, name: str) -> Iterator[Check]:
    """Those of one method."""
    method = prediction_method(name)
    conditioned = subject.conditioned()
    result = conditioned.predict(subject.points, name)
    noisy = conditioned.predict(subject.points, name, observed=True)
    again = subject.conditioned().predict(subject.points, name)
    beyond = (
        "By how much the variance of f is above the prior's, relatively; infinite if one is not positive, or not below "
        "that of an observation."
    )
    same = "The largest difference to the same answer, computed again, in standard deviations."
    agree = "The largest difference between two agents' answers, in standard deviations."
    findings: dict[str, Finding] = {
        "agents agree": (_spread(result), SAME_ANSWER, agree),
        "equals its central twin": _twin(subject, method),
        "variances lie between 0 and the prior": (_beyond(subject, result, noisy), ROUNDING, beyond),
        "the same again": (_apart(result, again), REPEATED, same),
        "sent only what it may": _sent(name, kinds_of_prediction(method, subject.snapshot.kernel), result.ledger),
    }
    for what, finding in findings.items():
        yield _check(f"{name}: {what}", finding)
    yield from _coverage(subject, name)


def _spread(result: Prediction) -> float:
    """Between agents, whatever the variances are: others judge those."""
    return float(np.ptp(result.means, axis=0).max() / np.sqrt(np.abs(result.variances).max()))


def _beyond(subject: Subject, result: Prediction, noisy: Prediction) -> float:
    view, theta = subject.model
    kernel = subject.snapshot.kernel
    places = view.coordinates.places(subject.points)
    prior = view.scaling.scale**2 * kernel.variance(places, Hyperparameters.from_theta(theta))
    if not (result.variances > 0.0).all() or not (noisy.variances > result.variances).all():
        return np.inf
    return max(0.0, float((result.variances / prior).max() - 1.0))


def _apart(one: Prediction, other: Prediction, where: BoolArray | slice = slice(None)) -> float:
    """The largest difference of means in deviations, or of variances relative to each other."""
    variance = np.abs(other.variance[where])
    means = np.abs(one.mean[where] - other.mean[where]) / np.sqrt(variance)
    return float(max(means.max(initial=0.0), np.abs(one.variance[where] / variance - 1.0).max(initial=0.0)))


# ---- the central twin ----------------------------------------------------------------------------------------------


def _twin(subject: Subject, method: PredictionMethod) -> Finding:
    """Against the same rule at a central node; of dec-nn- methods with everybody taking part."""
    if not method.decentralized:
        return "It is the central one."
    if method.rule == "nearest":
        result = subject.conditioned().predict(subject.points, method.name)
        other = subject.alone().predict(subject.points, method.name)
        return _apart(result, other), TWIN, "Against one agent that has the rows of all."
    if method.rule == "summary":
        result = subject.conditioned().predict(subject.points, method.name, min_rows=1, budget=UNLIMITED)
        other = subject.alone().predict(subject.points, method.name)
        return _apart(result, other), TWIN, "With groups of one row each, against one agent that has the rows of all."
    eta = 0.0 if method.nearest else None
    conditioned = subject.conditioned()
    result = conditioned.predict(subject.points, method.name, eta=eta)
    everyone = np.asarray(result.participants.all(axis=0))
    if not everyone.any():
        return "There is no point at which all agents take part."
    other = conditioned.predict(subject.points, method.rule)
    how = f" at the {int(everyone.sum())} points where, with eta=0, everybody takes part" if method.nearest else ""
    meaning = f"Against {method.rule} over a server{how}: means in standard deviations, variances relative."
    return _apart(result, other, everyone), TWIN, meaning


# ---- calibration ---------------------------------------------------------------------------------------------------


def _coverage(subject: Subject, name: str) -> Iterator[Check]:
    """How many hidden rows lie in intervals that the fleet predicts from the rest."""
    names = [f"{name}: {100 * level:.0f} % intervals" for level in LEVELS]
    z = _standardized(subject, name)
    for level, title in zip(LEVELS, names, strict=True):
        if len(z) < FEWEST_HIDDEN:
            yield Check.idle(title, f"Only {len(z)} rows could be hidden: {FEWEST_HIDDEN} are needed.")
            continue
        share = float((np.abs(z) <= scipy.special.ndtri(0.5 + 0.5 * level)).mean())
        error = float(np.sqrt(level * (1.0 - level) / len(z)))
        meaning = f"{100 * share:.0f} % of {len(z):,} hidden rows lie inside, give or take {100 * error:.0f} %"
        off, limit = abs(share - level), MISFIT + ERRORS * error
        if off > limit:
            wrong = "too sure of itself" if share < level else "too cautious"
            meaning += f": the fleet is {wrong}, and fleet.calibrate mends it"
        yield Check.of(title, off, limit, meaning + ".", telling=True)


def _standardized(subject: Subject, name: str) -> Array:
    """How many deviations each hidden row is off, by the agent's own answer; with the fleet's calibration, if any."""
    rest, asked = [], []
    for agent, data in enumerate(subject.snapshot.shards):
        order = np.random.default_rng([subject.seed, agent]).permutation(len(data))
        away = np.isin(np.arange(len(data)), order[: int(subject.hold * len(data))])
        rest.append(data.rows(~away))
        asked.append(data.rows(away))
    counts = list(map(len, asked))
    if sum(counts) < FEWEST_HIDDEN:
        return np.zeros(sum(counts))
    conditioned, calibration = subject.conditioned(InMemory(rest)), subject.fleet.calibration
    if calibration is not None and calibration.method == name:
        conditioned.calibration = calibration
    result = conditioned.predict(np.concatenate([one.inputs for one in asked]), name, observed=True)
    starts, parts = np.cumsum([0, *counts]), []
    for agent, one in enumerate(asked):
        own = slice(starts[agent], starts[agent + 1])
        variance = np.abs(result.variances[agent, own])
        if one.noise_std is not None:
            variance = variance + one.noise_std**2  # which no other agent knows
        parts.append((one.values - result.means[agent, own]) / np.sqrt(variance))
    return np.concatenate(parts)
