"""The options of a training: what they mean, what they may be, and what is taken where none is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from fleetgp.arrays import Array
from fleetgp.consensus.agreements import MeanName
from fleetgp.data.transforms import CoordinateRule
from fleetgp.declarations import checked
from fleetgp.errors import check_name
from fleetgp.options import ModelOptions, TrainerOptions
from fleetgp.training.constraints import ParameterConstraints
from fleetgp.validation import check_whole

if TYPE_CHECKING:
    from fleetgp.training.methods import TrainingMethod

#: Iterations of a nested minimization: the paper's of gradient descent, and more than L-BFGS ever needs.
DESCENT_ITERATIONS = 10
LBFGS_ITERATIONS = 200
#: The paper's step size of nested gradient descent.
DESCENT_STEP = 1e-5
#: Settings by one word.
PRESETS = ("paper",)
#: The paper's penalty, the stiffness of its linearized steps, the rounds of its decentralized methods, and the
#: tolerance of the others.
PAPER_RHO, PAPER_STIFFNESS, PAPER_ROUNDS, PAPER_TOL = 500.0, 5000.0, 100, 1e-3


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(TrainerOptions):
    """Settings known to every agent: those of `TrainerOptions`, and of the model. None: the method chooses.

    starts: (S, P) log theta, of which the best total likelihood wins; None takes three from the size of the data.
    rounds, tol: stop when the agents agree within tol in log theta and each is within tol of a stationary point, judged
        by a maximin consensus, or after this many rounds. `tol=0` runs exactly `rounds` rounds. With a central node
        and a fixed rho it is the paper's rule, |theta_i - z| < tol. full-gp, fact-gp and g-fact-gp end when no gradient
        is left above tol, or above rounding; dec-fact-gp and dec-g-fact-gp when the minimum is within tol in log theta.
        A round of these five is one evaluation of the likelihoods.
    seconds: stop after this time on an agent's own clock, at the end of the round or of the window of rounds in which
        the time of the first agent is up, with the best theta so far.
    noise_floor: the smallest sigma_eps allowed, in units of the observations' deviation: of the fleet's standard
        deviation with normalize; without, of the power of two at or above the largest standard deviation of one agent's
        own observations (of their root mean square, if no agent's observations vary). Data without noise have no best
        sigma_eps above zero: a training that ends at the floor reports it. Starts below it begin at it. With 0 there
        is none, and nothing is sent for it.
    known: bounds, priors and fixed values of hyperparameters; None for none. Starts beyond a bound begin at it. A lower
        bound or a fixed value of sigma_eps takes the place of the noise floor, and so does an upper bound that is not
        above it.
    seed: draws the samples of the g- methods, per agent.
    normalize: centre and scale the observations by the fleet's own mean and standard deviation.
    mean: the mean function of the model, "zero", "constant" or "linear" in the inputs: first by least squares, then
        by generalized least squares and theta in turns, until it has settled.
    coordinates: of the inputs, see `fleetgp.data.transforms`.

    >>> TrainingOptions(rounds=50, tol=1e-3).rounds
    50
    >>> TrainingOptions(rounds=0)
    Traceback (most recent call last):
    fleetgp.errors.InputError: rounds must be a whole number of at least 1, got 0
    """

    starts: Array | None = None
    known: ParameterConstraints | None = None
    seed: int = 0
    normalize: bool = False
    mean: MeanName = "zero"
    coordinates: CoordinateRule = field(default_factory=CoordinateRule)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("seed", self.seed, least=0)
        checked(ModelOptions, {"normalize": self.normalize, "mean": self.mean})

    def known_of(self, names: Sequence[str]) -> ParameterConstraints:
        """What is known of the hyperparameters, if only their names."""
        return ParameterConstraints.of(names) if self.known is None else self.known

    @property
    def descends(self) -> bool:
        """Whether the nested solver is the paper's gradient descent."""
        return self.nested == "gradient-descent"

    @property
    def step_size(self) -> float | None:
        """The step size of the paper's gradient descent; None for L-BFGS."""
        return (self.step or DESCENT_STEP) if self.descends else None

    @property
    def nested_limit(self) -> int:
        """The most iterations of the nested solver."""
        return self.nested_iterations or (DESCENT_ITERATIONS if self.descends else LBFGS_ITERATIONS)


#: The options that only some methods have.
SWITCHED = ("rho", "kappa", "lipschitz", "nested", "step", "nested_iterations")
#: The options of a whole training that its steps have too, besides where they start and what draws their samples.
STEP_OPTIONS = tuple(
    option.name
    for option in fields(TrainingOptions)
    if option.name not in ("starts", "rounds", "seconds", "known", "seed", "normalize")
)


def preset_options(preset: str, method: TrainingMethod) -> dict[str, Any]:
    """What a word stands for with a method: options, of which any may be given beside it.

    >>> from fleetgp.training import training_method
    >>> preset_options("paper", training_method("dec-apx-gp"))
    {'noise_floor': 0.0, 'rho': 500.0, 'kappa': 5000.0, 'rounds': 100, 'tol': 0.0}
    >>> preset_options("paper", training_method("full-gp"))
    {'noise_floor': 0.0}
    """
    check_name("preset", preset, PRESETS)
    if not method.options:
        return {"noise_floor": 0.0}
    constants = {"rho": PAPER_RHO, "kappa": PAPER_STIFFNESS, "lipschitz": PAPER_STIFFNESS, "nested": "gradient-descent"}
    ends = {"rounds": PAPER_ROUNDS, "tol": 0.0} if method.decentralized else {"tol": PAPER_TOL}
    own = {name: value for name, value in constants.items() if name in method.options}
    return {"noise_floor": 0.0, **own, **ends}
