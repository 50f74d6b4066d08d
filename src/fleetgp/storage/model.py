"""A trained fleet with the names that people know it by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetgp.errors import InputError, shortened
from fleetgp.fleet import Fleet
from fleetgp.validation import as_names


@dataclass(frozen=True)
class Model:
    """A fleet with the names that people know it by.

    agents, inputs: M and D names, which it has as tuples.  target: the name of what is observed. Without them those
        that the fleet has from its data; agents are called 0, 1, .. and the target y where the data have no names.
    note: what else is to be told of how it came about.

    The fleet learns them, so that it takes data frames by the inputs' names; if it has names of inputs, they must be
    these. `fleet.units` are kept with the model.

    >>> from fleetgp import partition, synthetic_field
    >>> field = synthetic_field(120, seed=1)
    >>> fleet = Fleet(partition(field.inputs, field.observations, agents=2), theta=[1.2, 0.3, 1.3, 0.1])
    >>> Model(fleet, ("Ada", "Bo"), ("lon", "lat"), "sst")
    Model(sst at (lon, lat): 2 agents, 120 observations, kernel matern32, given)
    >>> Model(fleet).agents  # the fleet has names now
    ('Ada', 'Bo')
    >>> model = Model(Fleet([([[0.0], [1.0]], [1.0, 2.0])], theta=[1, 1, 0.1]), ["ada"], ["lon"], "sst")
    >>> model.theta
    {'l_lon': 1.0, 'sigma_f': 1.0, 'sigma_eps': 0.1}
    """

    fleet: Fleet
    agents: Sequence[str] = ()
    inputs: Sequence[str] = ()
    target: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.fleet, Fleet):
            raise InputError(f"fleet: expected a Fleet, got {shortened(self.fleet)}")
        known = {"agents": self.fleet.labels, "inputs": self.fleet.inputs, "target": self.fleet.target}
        for name, value in known.items():
            given = getattr(self, name)
            if isinstance(given, tuple | str) and not given:
                object.__setattr__(self, name, value)
        if self.inputs is None:
            raise InputError('inputs: expected their names, inputs=["lon", "lat"] say, since the fleet has none')
        for name, expected in (("agents", self.fleet.agents), ("inputs", self.fleet.dimension)):
            given = getattr(self, name)
            names = as_names(given, name)
            if len(names) != expected:
                raise InputError(f"{name}: expected {expected} names, as many as the fleet has, got {len(names)}")
            object.__setattr__(self, name, names)
        for name, word in (("target", "a name"), ("note", "a text")):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name}: expected {word}, got {shortened(getattr(self, name))}")
        if self.fleet.inputs not in (None, self.inputs):
            raise InputError(
                f"inputs: expected {', '.join(self.fleet.inputs or ())}, as the fleet has them, "
                f"got {', '.join(self.inputs)}: name them in the fleet's order"
            )
        self.fleet.inputs = tuple(self.inputs)
        self.fleet.call(self.agents, self.target, self.fleet.units)

    @classmethod
    def of(cls, fleet: Fleet) -> Model:
        """A fleet under the names that it has from its data; one error where it has none.

        >>> fleet = Fleet([([[0.0], [1.0]], [1.0, 2.0])], theta=[1, 1, 0.1], inputs=["lon"])
        >>> Model.of(fleet.call(["ada"], "sst", {})).agents
        ('ada',)
        """
        if not fleet.has_names or fleet.inputs is None:
            raise InputError(
                "the fleet: expected names of its agents, inputs and target, got none: give them, "
                "fg.Model(fleet, agents, inputs, target)"
            )
        return cls(fleet, fleet.labels, fleet.inputs, fleet.target)

    @property
    def status(self) -> str:
        """How training ended; "interrupted" where it did not, "given" where there was none."""
        if self.fleet.last_fit is not None:
            return self.fleet.last_fit.status
        return "interrupted" if self.note.startswith("interrupted") else "given"

    @property
    def theta(self) -> dict[str, float]:
        """The hyperparameters by name, length-scales under the inputs' names."""
        if self.fleet.theta is None:
            raise InputError("the fleet has no hyperparameters yet: train it, or give theta")
        return dict(zip(self.fleet.names, self.fleet.theta.tolist(), strict=True))

    def __repr__(self) -> str:
        rows, agents = sum(self.fleet.data.counts), len(self.agents)
        how = self.status if self.fleet.last_fit is None else f"{self.fleet.last_fit.method} {self.status}"
        return (
            f"Model({self.target} at ({', '.join(self.inputs)}): {agents} {'agent' if agents == 1 else 'agents'}, "
            f"{rows:,} observations, kernel {self.fleet.first_kernel.name}, {how})"
        )
