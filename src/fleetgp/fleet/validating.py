"""`Fleet.cross_validate`: rows are hidden, fold by fold, and predicted by the fleet from the rest."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetgp.arrays import Array, IntArray
from fleetgp.errors import FleetGPWarning, InputError, check_name, shortened
from fleetgp.fleet.folds import By, Rest, by_name, dealt, rows_of, without
from fleetgp.fleet.privacy import predictor_of, refuse_queries
from fleetgp.fleet.scoring import trivial_of
from fleetgp.fleet.validation import CrossValidation, Fold
from fleetgp.given import as_flag, check_whole
from fleetgp.io.kept import Kept
from fleetgp.metrics import LEVEL
from fleetgp.metrics.formulas import half_width
from fleetgp.progress import Listener, Pace, Progress, listening

if TYPE_CHECKING:
    from fleetgp.fleet.fleet import Fleet

#: Of `train`, where neither a fit nor a caller says another.
TRAINER = "dec-fact-gp"


def cross_validate(
    fleet: Fleet,
    folds: int | None = None,
    by: By = "random",
    method: str | None = None,
    *,
    train: bool | Mapping[str, Any] = True,
    cells: int | None = None,
    level: float = LEVEL,
    seed: int | None = None,
    progress: bool | Listener = False,
    kept: Kept | None = None,
    **asking: Any,
) -> CrossValidation:
    """How well the fleet predicts observations that it does not see: every row is hidden once, with others.

    folds: how many times rows are hidden; 5, or with by="agent" once for each agent.
    by: what is hidden together. "random": rows of every agent, which tells how good predictions are among the data.
        "agent": all rows of an agent. "block": whole cells of the fleet's box, the same for all agents, so that nobody
        observes them: it tells how good predictions are in gaps. An agent with no other rows still relays.
    method, asking: as in `predict`. Each agent's rows are judged by its own answer; those of an agent without other
        rows by that of the first agent with the same noise.
    train: True trains anew for every fold, as the fleet was trained (by `fit.method`, with its bounds and priors, from
        its theta if it has one); a dictionary has other options of `Fleet.train`. False predicts with the present
        theta, which knows the hidden rows a little, and takes a fraction of the time.
    cells: with by="block", how many cells the box has; 16 for each agent, and at least 100.
    level: of the intervals.  seed: draws what is hidden; without it the fleet's.
    progress: True for a bar on the terminal, or a callable that gets a `Progress`.
    kept: where finished folds are kept, so that an interrupted call goes on.

    A fleet with private="rows" refuses: the inputs of hidden rows are queries, which all agents see.
    The fleet stays as it is. A calibration is not used: it is of all rows. Of data in files the rows are loaded, or the
    sample that the fleet has of them.

    >>> from fleetgp import Fleet, partition, synthetic_field
    >>> field = synthetic_field(200, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=4), theta=[1.2, 0.3, 1.3, 0.1])
    >>> found = fleet.cross_validate(by="random", method="dec-rbcm", train=False)
    >>> len(found.folds), found.scores.rows, found.means[0].shape == fleet.shards[0][1].shape
    (5, 200, True)
    >>> gaps = fleet.cross_validate(by="block", method="dec-rbcm", train=False)
    >>> gaps.scores.rmse > found.scores.rmse
    True
    """
    refuse_queries(fleet.private, "cross_validate", "Use `calibrate`, which reports coverage")
    method = predictor_of(fleet.private, method).name
    half_width(level)
    chosen = fleet.seed if seed is None else seed
    check_whole("seed", chosen, least=0)
    if "noisy" in asking or "agent" in asking:
        raise InputError("cross_validate: expected neither noisy nor agent: every agent judges its own observations")
    if kept is not None and not isinstance(kept, Kept):
        raise InputError(f"kept: expected a Kept, as fleetgp.io.kept.Kept(folder, {{}}), got {shortened(kept)}")
    fleet._backend.check_here("cross_validate")
    plan = Plan(fleet, method, asking, _training(fleet, train), tuple(dealt(fleet, by, folds, cells, chosen)))
    numbers = sorted({int(number) for own in plan.fold_of for number in np.unique(own)})
    if len(numbers) < 2:
        raise InputError(f'by="{by}": expected rows in at least two folds, got them in {len(numbers)}: give more cells')
    renumbered = tuple(np.searchsorted(numbers, own) for own in plan.fold_of)  # blocks may leave a fold empty
    found = _followed(replace(plan, fold_of=renumbered), len(numbers), by, progress, kept)
    truths = [own.values for own in rows_of(fleet)]
    return CrossValidation.of(by, method, found, renumbered, truths, level, fleet.labels)


@dataclass(frozen=True)
class Plan:
    """training: the options of `Fleet.train`; None for the theta that there is.  fold_of: (N_i,) of each agent."""

    fleet: Fleet
    method: str
    asking: Mapping[str, Any]
    training: Mapping[str, Any] | None
    fold_of: tuple[IntArray, ...]

    def fold(self, number: int) -> Fold:
        """Hide a fold, and have the rest predict it."""
        fleet, trained = self.fleet, self.training is not None
        choices = [kernel.name for kernel in fleet.kernels]
        rest = without(fleet, self.fold_of, number, kernel=choices if trained else fleet.kernel.name)
        status, rounds, sent = self._trained(rest.fleet)
        asked, known = _hidden(fleet, self.fold_of, number)
        queries = np.concatenate(asked)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FleetGPWarning)  # of gaps: they are what is asked about, and counted
            found = rest.fleet.predict(queries, self.method, noisy=True, **self.asking)
        ends = np.cumsum([len(own) for own in asked])[:-1]
        assert rest.fleet.theta is not None, "it was trained, or given"
        return Fold(
            means=_judged(found.means, rest, ends),
            variances=tuple(v + s**2 for v, s in zip(_judged(found.variances, rest, ends), known, strict=True)),
            trivial=trivial_of(rest.fleet.data),
            theta=dict(zip(rest.fleet.names, rest.fleet.theta.tolist(), strict=True)),
            training=status,
            prediction=found.status,
            relays=tuple(agent for agent in range(fleet.agents) if agent not in rest.members),
            uninformed=int(found.uninformed.sum()),
            rounds=rounds + found.ledger.rounds,
            bytes=sent + found.ledger.bytes,
        )

    def _trained(self, rest: Fleet) -> tuple[str, int, int]:
        """Train what is left, or give it the theta that there is: how that ended, its rounds and bytes."""
        fleet = self.fleet
        if self.training is None:
            assert fleet.theta is not None, "it was checked"
            rest.theta = np.array(by_name(fleet.theta, fleet.names, rest.names))
            return "given", 0, 0
        options = dict(self.training)
        if "theta0" not in options and fleet.theta is not None and len(rest.kernels) == 1:
            options["theta0"] = by_name(fleet.theta, fleet.names, rest.names)
        fit = rest.train(**options)
        if fit.status == "diverged":
            raise InputError(f"cross_validate: {fit.method} diverged without the rows of a fold: train in another way")
        return fit.status, fit.ledger.rounds, fit.ledger.bytes


def _training(fleet: Fleet, train: object) -> Mapping[str, Any] | None:
    """The options of `Fleet.train`; None for none."""
    if isinstance(train, Mapping):
        for name in train:
            check_name("option of train", name, list(signature(fleet.train).parameters))
        return {"method": TRAINER, **train}
    if not as_flag(train, "train"):
        if fleet.theta is None:
            raise InputError("cross_validate: the fleet has no hyperparameters yet: give train=True, or train it first")
        return None
    if fleet.fit is None:
        return {"method": TRAINER}
    known = replace(fleet.fit.known, names=fleet.names).as_dict() if fleet.fit.known.names else {}
    return {"method": fleet.fit.method, **{name: given for name, given in known.items() if given}}


def _followed(plan: Plan, folds: int, by: str, progress: bool | Listener, kept: Kept | None) -> list[Fold]:
    """All folds, one after the other; those that are kept are not computed again."""
    found: list[Fold] = []
    with listening(progress) as listener:
        pace = Pace()
        for number in range(folds + 1):
            if listener is not None:
                listener(Progress(f"by {by}", number, folds, pace.told(number, folds), unit="fold"))
            if number < folds:
                piece = None if kept is None else kept.get(str(number))
                found.append(plan.fold(number) if piece is None else Fold.from_dict(piece))
                if kept is not None and piece is None:
                    kept.put(str(number), found[-1].as_dict())
    return found


def _hidden(fleet: Fleet, fold_of: Sequence[IntArray], number: int) -> tuple[list[Array], list[Array]]:
    """Inputs and known deviations of each agent's hidden rows; 0 where there are none."""
    rows = [own.rows(folds == number) for own, folds in zip(rows_of(fleet), fold_of, strict=True)]
    known = [np.zeros(len(own)) if own.noise_std is None else own.noise_std for own in rows]
    return [own.inputs for own in rows], known


def _judged(answers: Array, rest: Rest, ends: IntArray) -> tuple[Array, ...]:
    """Of answers (A, T) to all hidden rows, those of each agent's own rows, by the agent that judges them."""
    parts = np.split(answers, ends, axis=1)
    return tuple(np.array(part[judge]) for part, judge in zip(parts, rest.judges, strict=True))
