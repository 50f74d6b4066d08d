"""`verify`: identities that must hold, checked on a fleet's own data."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from fleetgp.advice.prediction_checks import prediction_checks
from fleetgp.advice.subject import Subject, check_methods
from fleetgp.advice.training_checks import training_checks
from fleetgp.advice.verification import Verification
from fleetgp.errors import FleetGPWarning, InputError
from fleetgp.fleet import Fleet
from fleetgp.given import check_number, check_whole


def verify(fleet: Fleet, *, hold: float = 0.1, seed: int = 0, methods: Sequence[str] | None = None) -> Verification:
    """Check on the fleet's own data that what must be true is true; nothing of the fleet is changed.

    hold: the share of each agent's rows that is hidden, to see whether intervals cover what they promise. Theta knows
        them, the predictions do not.
    seed: draws these rows, and samples of large data.
    methods: of prediction; without them dec-nn-grbcm, after a training by dec-full-gp that, and the one that the fleet
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
