"""The result of a training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fleetgp.arrays import Array, BoolArray, IntArray
from fleetgp.consensus import Status
from fleetgp.consensus.agreements import Scaling
from fleetgp.data.transforms import AS_GIVEN, Coordinates
from fleetgp.engines.moments.fleet import FleetMoments
from fleetgp.network import Ledger
from fleetgp.training.constraints import ParameterConstraints


@dataclass(frozen=True)
class MeanFit:
    """The mean function of a model, in the units of the data: constant + slopes'(x - at).

    With coordinates="kilometres" the differences of longitude and latitude are in kilometres, east and north, and the
    slopes per kilometre: cos(lat_c) pi R (lon - at_lon) / 180 and pi R (lat - at_lat) / 180, lat_c that of the plane.

    slopes: one for each input; none where the mean function is a constant.  at: where the constant is the mean.
    errors: the standard errors of the constant and the slopes at the theta of the fit, which theirs of predictions do
        not count; NaN if they could not be computed, and then it is ordinary least squares.
    turns: how often theta was trained.  settled: another turn would change nothing to speak of.
    """

    constant: float
    slopes: tuple[float, ...]
    at: tuple[float, ...]
    errors: tuple[float, ...]
    turns: int
    settled: bool

    @property
    def coefficients(self) -> Array:
        """As numbers to be sent: the constant, the slopes, and where the constant is the mean."""
        return np.array([self.constant, *self.slopes, *self.at])

    def to_user_units(self, coordinates: Coordinates) -> MeanFit:
        """Slopes in units of the inputs, or per kilometre; the centre as a place."""
        if not self.slopes:
            return self
        units = np.ones(len(self.slopes)) if coordinates.name != "scaled" else np.array(coordinates.unit)
        at = coordinates.given(np.array(self.at))
        slopes, errors = np.array(self.slopes) / units, np.array(self.errors) / [1.0, *units]
        return replace(self, slopes=tuple(slopes.tolist()), at=tuple(at.tolist()), errors=tuple(errors.tolist()))

    def named(self, inputs: Sequence[str] | None) -> dict[str, float]:
        """The coefficients by name."""
        names = inputs or [f"input {d + 1}" for d in range(len(self.slopes))]
        slopes = {f"per {name}": slope for name, slope in zip(names, self.slopes, strict=False)}
        return {"constant": self.constant, **slopes}


@dataclass(frozen=True)
class Start:
    """One of the starts of a training: where it began, how good it was, and how it ended.

    Of several, those that were not chosen were followed to a coarse tolerance only, which their status is about. Those
    on a sample (see `Fit.sample`) have the likelihood of that sample, and were followed on it alone.
    """

    theta0: Array
    nll: float
    rounds: int
    status: Status


@dataclass(frozen=True)
class Compared:
    """A kernel that was compared with others (`kernel="auto"`).

    density: the logarithm of the predictive density of held-out rows, per row; -inf if its training failed.
    rows: how many there were in the fleet.  theta: what it was trained to, on a sample; NaN if it failed.
    """

    kernel: str
    density: float
    rows: int
    theta: tuple[float, ...]


@dataclass(frozen=True)
class Fit:
    """What a training ended with, and how, for the agents hosted here: all of them, for a `Fleet`.

    thetas: (A, P) each agent's own hyperparameters, natural units, paper order: l_1 .. l_D, sigma_f, sigma_eps.
    names: (P,) what they are called; `named` has the values under them. A length-scale of "se" is sqrt(2) times
        scikit-learn's or GPyTorch's, and so is one of "rq"; those of the Matérn kernels are the same as there.
    history: (R + 1, A, P) the same after every round, from the start.
    rounds: rounds of the training itself; the ledger also has those of problem it up.
    status: "converged" (the stopping rule held), "round limit", "time limit" or "diverged".
    residual: what the stopping rule last saw; infinite if it never judged.
    nll: the sum of the local likelihoods at the end, of augmented data for the g- methods; for full-gp and dec-full-gp
        the likelihood of all data. With priors, nll + penalty is what was minimized.
    jitter: (A,) the largest that an agent's covariance needed; 0 where none was needed.
    scaling: the mean and standard deviation taken out of the observations; 0 and 1 without normalize. The
        likelihood is of the scaled observations, theta is in the units of the data.
    mean: the mean function in the units of the data; None for mean="zero". Its coefficients are those that theta was
        trained with. "converged" means that it has settled, too.
    coordinates: of the inputs, as the model sees them; theta is in the units of the data, or of kilometres.
    engine: (A,) what evaluated the agent's likelihood at the end, "dense", "moments" or "vecchia".
    approximation: (A,) by how much, in nats, a likelihood of "vecchia" would be smaller at the end with twice as many
        neighbours, estimated; 0 for the other engines, which are exact.
    rho: (P,) the penalty at the end; empty for the methods that have none.
    noise_floor: the smallest sigma_eps that the option of this name allowed, in the units of the data; 0 for none.
    known: bounds, priors and fixed values that were given, in the units of the data.
    sample: (A,) how many of its observations each agent trained on first; empty if it was all of them.
    used: (A,) of how many observations the likelihood at the end is: of all that the agent held, unless the time was up
        while it trained on a sample.
    drawn, held: (A,) where each agent trained on a random sample of its own observations (`Fleet.from_files` with
        sample): how many these are, and how many are in the files; empty if it was all of them.
    nlls, start_nlls: (A,) and (S, A) the summands of `nll` and of those of the starts; empty in a model that was read.
    kernel: the name of the one that was trained.
    compared: the kernels that it was chosen from, by the predictive density of held-out rows; empty without
        `kernel="auto"`.
    noises: how many hyperparameters, the last of theta, are of the noise.
    outliers: (A,) how many of its observations each agent weighs down at the end; empty without `robust`.
    offset: how many times the size of the observations is their standard deviation, where they are not normalized and
        the fleet knows it; else 0.
    flat_numbers: places in theta of the hyperparameters along which the likelihood is flat where the training ended;
        `flat` has their names.
    stopped_numbers: places of those at a limit that the training sets itself, where the likelihood is not flat.
    moments: of dec-full-gp, those of the scaled data of the whole fleet: with them an agent predicts alone.

    >>> import fleetgp as fg
    >>> field = fg.synthetic_field(60, seed=1)
    >>> fit = fg.Fleet(fg.partition(field.inputs, field.observations, agents=3)).train(theta0=[2, 0.5, 1, 1])
    >>> fit.status, fit.theta.shape, fit.thetas.shape, fit.disagreement < 1e-6
    ('converged', (4,), (3, 4), True)
    """

    method: str
    thetas: Array
    history: Array
    rounds: int
    status: Status
    residual: float
    nll: float
    jitter: Array
    rho: Array
    starts: tuple[Start, ...]
    scaling: Scaling
    engine: tuple[str, ...]
    ledger: Ledger
    noise_floor: float = 0.0
    known: ParameterConstraints = field(default_factory=ParameterConstraints)
    mean: MeanFit | None = None
    coordinates: Coordinates = AS_GIVEN
    moments: FleetMoments | None = None
    kernel: str = ""
    compared: tuple[Compared, ...] = ()
    approximation: Array = field(default_factory=lambda: np.zeros(0))
    sample: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    used: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    drawn: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    held: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    nlls: Array = field(default_factory=lambda: np.zeros(0))
    start_nlls: Array = field(default_factory=lambda: np.zeros((0, 0)))
    noises: int = 1
    outliers: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    names: tuple[str, ...] = ()
    offset: float = 0.0
    flat_numbers: tuple[int, ...] = ()
    stopped_numbers: tuple[int, ...] = ()

    @property
    def flat(self) -> tuple[str, ...]:
        """The hyperparameters along which the likelihood is flat where the training ended, by name.

        An input without effect, a large alpha of rq, a part of the kernel that is not needed: all values from there on
        are equally good.
        """
        names = self.names or self.known.names
        return tuple(names[number] for number in self.flat_numbers)

    @property
    def named(self) -> dict[str, float]:
        """The fleet's estimate by the names of the hyperparameters: {"l_lon": 0.8, .., "sigma_eps": 0.1}.

        >>> from fleetgp import Fleet, partition, synthetic_field
        >>> field = synthetic_field(90, seed=1)
        >>> fleet = Fleet(partition(field.inputs, field.observations, agents=3), inputs=["lon", "lat"])
        >>> fit = fleet.train("fact-gp", theta0=[1.2, 0.3, 1.3, 0.1])
        >>> list(fit.named), fit.named["l_lat"] == fit.theta.tolist()[1]
        (['l_lon', 'l_lat', 'sigma_f', 'sigma_eps'], True)
        """
        return dict(zip(self.names, self.theta.tolist(), strict=bool(self.names)))

    @property
    def at_floor(self) -> BoolArray:
        """(A,) whose sigma_eps stands at its floor, to a percent: agents agree to a tolerance, not to the last bit.

        Where there are several, any of them.
        """
        return np.asarray(self._floored.any(axis=1))

    @property
    def floored(self) -> tuple[str, ...]:
        """Which sigma_eps stand at their floor, at any agent."""
        names = self.known.names[-self.noises :] or ("sigma_eps",)
        return tuple(name for name, low in zip(names, np.asarray(self._floored.any(axis=0)), strict=True) if low)

    @property
    def _floored(self) -> BoolArray:
        """(A, Q)."""
        open_ended = np.array(self.known.lower[-self.noises :] or [0.0]) == 0.0  # others have a bound of their own
        return np.asarray((self.thetas[:, -self.noises :] <= 1.01 * self.noise_floor) & open_ended)

    @property
    def at_bounds(self) -> tuple[str, ...]:
        """Who stands at a bound, the floor of sigma_eps too, at any agent, to a percent; fixed ones do not count."""
        low, high = self.known.touched(self.thetas)
        names = [name for name, touched in zip(self.known.names, low | high, strict=True) if touched]
        return (*names, *(name for name in self.floored if name not in names))

    @property
    def penalty(self) -> float:
        """What the priors add to the fleet's nll, at theta; 0 without priors."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return float(self.known.prior.penalty(np.log(self.theta))) if self.known.prior.given else 0.0

    @property
    def theta(self) -> Array:
        """(P,) the fleet's estimate: the geometric mean of the agents' own."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # where it diverged
            return np.asarray(np.exp(np.log(self.thetas).mean(axis=0)))

    @property
    def disagreement(self) -> float:
        """The largest difference between two agents in the logarithm of a hyperparameter."""
        return disagreement(self.thetas)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value:.4g}" for name, value in self.named.items())
        values = values or "theta=({})".format(", ".join(f"{value:.4g}" for value in self.theta))
        return (
            f"Fit({self.method}: {values}, status={self.status!r}, rounds={self.rounds}, "
            f"disagreement={self.disagreement:.1e})"
        )


def disagreement(thetas: Array) -> float:
    """The largest difference between two rows in the logarithm; NaN where they diverged.

    >>> round(disagreement(np.array([[1.0, 2.0], [1.0, 4.0]])), 3), disagreement(np.array([[np.inf], [np.inf]]))
    (0.693, nan)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.ptp(np.log(thetas), axis=0).max())
