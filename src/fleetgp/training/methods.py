"""The twelve training methods, and those that other packages register."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from fleetgp.errors import InputError, shortened, unknown_name
from fleetgp.network.ledger import KINDS
from fleetgp.registry import Names, Registry
from fleetgp.training.admm import EdgeAdmm, LinearizedStep, NestedStep, ServerAdmm
from fleetgp.training.central import CentralMinimizer, Pooled, Shared
from fleetgp.training.newton import TreeNewton
from fleetgp.training.options import STEP_OPTIONS, SWITCHED, TrainingOptions
from fleetgp.training.problem import TrainingProblem
from fleetgp.training.solver import Solver, StepwiseSolver

Meet = Literal["pool", "minimize", "server", "tree", "edges", "moments"]
MakeSolver = Callable[[TrainingProblem, TrainingOptions], Solver[Any]]

ROWS = ("inputs", "observations")
#: Where the agents meet -> what their messages may hold besides statistics, and who makes the sums.
_KINDS: dict[Meet, tuple[str, ...]] = {
    "moments": ("hyperparameters", "moments"),
    "tree": (),
    "edges": ("hyperparameters", "stopping"),
    "pool": ("hyperparameters", "moments", *ROWS),  # moments of data in files
    "minimize": ("hyperparameters",),
    "server": ("hyperparameters", "stopping"),
}


@dataclass(frozen=True)
class TrainingMethod:
    """A trainer is where the agents meet, what follows a start, and which data the agents hold.

    meet: "pool" (all data at one node), "minimize" (one minimization at a central node), "server" (rounds with a
        central node), "tree" (sums over the spanning tree), "edges" (messages over the graph) or "moments" (each agent
        alone, with the moments of all data).
    solver: makes what follows a start.
    options: of the options that only some methods have, its own.
    augmented: whether an agent's data are augmented by samples of the others'.
    notes: what an agent sends, and when to use the method: for `fleetgp methods`.
    """

    name: str
    meet: Meet
    solver: MakeSolver
    options: tuple[str, ...] = ()
    augmented: bool = False
    notes: tuple[str, str] = ("", "")

    @property
    def decentralized(self) -> bool:
        return self.meet in ("tree", "edges", "moments")

    @property
    def stepwise(self) -> bool:
        """Whether it goes round by round, so that a caller can take one step of it."""
        return self.meet in ("server", "tree", "edges")

    @property
    def one_expert(self) -> bool:
        """Whether one expert has all data, or their moments."""
        return self.meet in ("pool", "moments")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of content that its messages may hold.

        >>> METHODS["dec-fact-gp"].kinds
        ('statistics',)
        """
        possible = ("statistics", *_KINDS[self.meet], *(ROWS if self.augmented else ()))
        return tuple(kind for kind in KINDS if kind in possible)

    @property
    def reveals_likelihoods(self) -> bool:
        """Whether it sends sums of likelihoods and their derivatives."""
        return self.meet in ("tree", "minimize")

    def check_options(self, options: TrainingOptions, spelled: Callable[[str], str] = str) -> None:
        """Raise an InputError for an option that this method does not have, even where its value is the default.

        spelled: how the caller writes an option's name.

        >>> METHODS["dec-apx-gp"].check_options(TrainingOptions(step=1e-3))
        Traceback (most recent call last):
        fleetgp.errors.InputError: dec-apx-gp has no option step: methods with step: c-gp, dec-c-gp
        """
        given = [name for name in SWITCHED if getattr(options, name) is not None]
        for name in given:
            if name not in self.options:
                having = ", ".join(row.name for row in METHODS.values() if name in row.options)
                option = spelled(name)
                raise InputError(f"{self.name} has no option {option}: methods with {option}: {having}")
        if "step" in given and not options.descends:
            raise InputError(
                f'{spelled("step")} is the step size of {spelled("nested")} "gradient-descent", and the nested solver '
                f"is {options.nested or 'l-bfgs'}: give both, or neither"
            )

    def check_stepwise(self, given: Iterable[str]) -> None:
        """Refuse a method that has no single steps, and options that no step has."""
        if not self.stepwise:
            having = ", ".join(row.name for row in METHODS.values() if row.stepwise)
            raise InputError(
                f"{self.name} has no single steps, since it is one minimization by L-BFGS: use train, or a method that "
                f"goes round by round: {having}"
            )
        for name in given:
            if name not in STEP_OPTIONS:
                raise unknown_name("option", name, STEP_OPTIONS)

    def stepwise_solver(self, problem: TrainingProblem, options: TrainingOptions) -> StepwiseSolver[Any]:
        solver = self.solver(problem, options)
        assert isinstance(solver, StepwiseSolver), "the registration says so"
        return solver


def _pooled(problem: TrainingProblem, options: TrainingOptions) -> CentralMinimizer:
    late = problem.deadline.passed_at_centre
    return CentralMinimizer(Pooled(problem.objective), problem.bounds, lambda: late(problem.network))


def _shared(problem: TrainingProblem, options: TrainingOptions) -> CentralMinimizer:
    late, likelihoods = problem.deadline.passed_at_centre, Shared(problem.objective, problem.network)
    return CentralMinimizer(likelihoods, problem.bounds, lambda: late(problem.network))


def _alone(problem: TrainingProblem, options: TrainingOptions) -> CentralMinimizer:
    return CentralMinimizer(Pooled(problem.objective), problem.bounds, lambda: problem.deadline.passed)


def _tree(problem: TrainingProblem, options: TrainingOptions) -> TreeNewton:
    return TreeNewton(problem.network, problem.objective, problem.bounds, problem.interlude, problem.deadline)


def _nested(problem: TrainingProblem, options: TrainingOptions) -> NestedStep:
    limit = options.nested_limit
    return NestedStep(problem.objective, problem.bounds, step_size=options.step_size, iterations=limit)


def _server_nested(problem: TrainingProblem, options: TrainingOptions) -> ServerAdmm:
    return ServerAdmm(problem.network, _nested(problem, options), options.rho, problem.deadline)


def _server_linearized(problem: TrainingProblem, options: TrainingOptions) -> ServerAdmm:
    primal = LinearizedStep(problem.objective, problem.bounds, options.lipschitz, at_anchor=True)
    return ServerAdmm(problem.network, primal, options.rho, problem.deadline)


def _edges_nested(problem: TrainingProblem, options: TrainingOptions) -> EdgeAdmm:
    primal = _nested(problem, options)
    return EdgeAdmm(problem.network, primal, options.rho, problem.interlude, problem.deadline)


def _edges_linearized(problem: TrainingProblem, options: TrainingOptions) -> EdgeAdmm:
    primal = LinearizedStep(problem.objective, problem.bounds, options.kappa)
    return EdgeAdmm(problem.network, primal, options.rho, problem.interlude, problem.deadline)


NESTED, KAPPA, LIPSCHITZ = ("rho", "nested", "step", "nested_iterations"), ("rho", "kappa"), ("rho", "lipschitz")
_OURS = (
    TrainingMethod("dec-full-gp", "moments", _alone),
    TrainingMethod("dec-fact-gp", "tree", _tree),
    TrainingMethod("dec-g-fact-gp", "tree", _tree, augmented=True),
    TrainingMethod("full-gp", "pool", _pooled),
    TrainingMethod("fact-gp", "minimize", _shared),
    TrainingMethod("g-fact-gp", "minimize", _shared, augmented=True),
    TrainingMethod("c-gp", "server", _server_nested, NESTED),
    TrainingMethod("apx-gp", "server", _server_linearized, LIPSCHITZ),
    TrainingMethod("gapx-gp", "server", _server_linearized, LIPSCHITZ, augmented=True),
    TrainingMethod("dec-c-gp", "edges", _edges_nested, NESTED),
    TrainingMethod("dec-apx-gp", "edges", _edges_linearized, KAPPA),
    TrainingMethod("dec-gapx-gp", "edges", _edges_linearized, KAPPA, augmented=True),
)
#: What an agent sends, and when to use the method.
_NOTES = {
    "dec-full-gp": ("once, the moments of its data, summed", "exact as full-gp: smooth fields, two inputs or so"),
    "dec-fact-gp": (
        "sums of l_i, gradient, Hessian per step",
        "the default: no observation leaves an agent; exact, cheap",
    ),
    "dec-g-fact-gp": ("as dec-fact-gp; once, N_i/M of its rows", "to compare: smooth fields in many small agents"),
    "full-gp": ("all its data, once", "the exact reference, where data may be pooled"),
    "fact-gp": ("a gradient per step", "to compare: the optimum of dec-fact, which needs no server"),
    "g-fact-gp": ("a gradient per step; once, N_i/M of its rows", "to compare: the optimum of dec-g-fact"),
    "c-gp": ("θ per round", "to compare with the paper"),
    "apx-gp": ("θ per round", "to compare; a server, no data sent"),
    "gapx-gp": ("θ per round; once, N_i/M of its rows", "to compare; a server, many agents"),
    "dec-c-gp": ("θ per round and neighbour", "to compare: more computing than dec-apx-gp"),
    "dec-apx-gp": ("θ per round and neighbour", "no observation, and nothing but θ, may leave an agent"),
    "dec-gapx-gp": ("θ per round and neighbour; once, N_i/M of its rows", "the same, accurate with many agents"),
}
METHODS: Registry[TrainingMethod] = Registry(
    "training method", {row.name: replace(row, notes=_NOTES[row.name]) for row in _OURS}
)
TRAINING_METHODS: Sequence[str] = Names(METHODS)
DECENTRALIZED_TRAINERS: Sequence[str] = Names(METHODS, lambda method: method.decentralized)


def training_method(name: str) -> TrainingMethod:
    """A method by name.

    >>> training_method("dec-gapx-gp").augmented
    True
    """
    return METHODS[METHODS.check(name)]


def register_trainer(
    name: str,
    solver: MakeSolver,
    *,
    meet: Literal["tree", "edges", "server"],
    sends: str,
    use: str = "",
    options: Iterable[str] = (),
    augmented: bool = False,
) -> None:
    """Add a training method of your own, under a name that works wherever those of ours do.

    solver: a `StepwiseSolver`, or whatever makes one of a `TrainingProblem` and the `TrainingOptions`.
    meet: "tree" if the agents send sums along the spanning tree, "edges" if they send hyperparameters to their
        neighbours, "server" if there is a central node. `private`, costs and `verify` follow from it.
    sends: what an agent sends; use: when to use the method. Both are for `fleetgp methods`.
    options: those that it has of rho, kappa, lipschitz, nested, step and nested_iterations. All have the others.
    augmented: whether the agents' data are augmented by samples of the others', as those of the g- methods are.

    docs/extending.md has an example.

    >>> register_trainer("apx-gp", _tree, meet="tree", sends="sums")
    Traceback (most recent call last):
    fleetgp.errors.InputError: FleetGP has a training method 'apx-gp' itself: choose another name
    """
    foreign = [option for option in options if option not in SWITCHED]
    if foreign or meet not in ("tree", "edges", "server"):
        got, expected = (foreign[0], SWITCHED) if foreign else (meet, ("tree", "edges", "server"))
        raise InputError(f"trainer {name}: expected one of {', '.join(expected)}, got {shortened(got)}")
    METHODS.add(name, TrainingMethod(name, meet, solver, tuple(options), augmented, (sends, use)))
