"""A trained fleet with the names that people know it by, and what its folder holds, for programs and in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetgp.data.dataset import corners
from fleetgp.data.transforms import coordinate_facts
from fleetgp.errors import InputError, shortened
from fleetgp.fleet import Fleet
from fleetgp.kernels.stationary import OBSERVED
from fleetgp.storage.sections import DESCRIPTION, LONGEST_DESCRIPTION, read_inside
from fleetgp.units import counted
from fleetgp.validation import as_names


@dataclass(frozen=True)
class Model:
    """A fleet with the names that people know it by.

    agents, inputs: M and D names, which it has as tuples.  target: the name of what is observed. Without them those
        that the fleet has from its data; agents are called 0, 1, .. and the target y where the data have no names.
    note: a remark on how the model was made.

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
        self.fleet.set_metadata(self.agents, self.target, self.fleet.units)

    @classmethod
    def of(cls, fleet: Fleet) -> Model:
        """A fleet under the names that it has from its data; one error where it has none.

        >>> fleet = Fleet([([[0.0], [1.0]], [1.0, 2.0])], theta=[1, 1, 0.1], inputs=["lon"])
        >>> Model.of(fleet.set_metadata(["ada"], "sst", {})).agents
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
        rows, agents = sum(self.fleet.data.counts), counted(len(self.agents), "agent")
        how = self.status if self.fleet.last_fit is None else f"{self.fleet.last_fit.method} {self.status}"
        return (
            f"Model({self.target} at ({', '.join(self.inputs)}): {agents}, "
            f"{rows:,} observations, kernel {self.fleet.first_kernel.name}, {how})"
        )


#: Units that files spell out, as people write them.
SHORT = {"degrees_east": "degrees", "degrees_north": "degrees", "kilometres": "km"}
#: Widths of the data beyond which a length-scale says that the field has no bend; more where paths are rough.
FAR, FAR_IF_ROUGH = 100.0, 10_000.0
#: Kilometres of a degree, at most.
DEGREE = 111.4


def settings_of(fleet: Fleet) -> dict[str, Any]:
    """What was chosen for the model, for JSON."""
    return {
        "kernel": fleet.kernel.name,
        "normalize": fleet.normalize,
        "mean": fleet.mean,
        "coordinates": fleet.coordinates.name,
        "deviations": fleet.noise_model.known,
        "noise": fleet.noise if fleet.noise is None or isinstance(fleet.noise, str) else list(fleet.noise),
        "robust": fleet.robust,
        "private": fleet.private,
        "time": fleet.time,
        "window": fleet.memory.window,
        "max_rows": fleet.memory.max_rows,
        "keep": fleet.memory.keep,
    }


def contents(model: Model, folder: Path) -> dict[str, Any]:
    """Describe a model that was read from this folder.

    The rows themselves, the estimates of single agents and the ledger are in the folder.
    """
    fleet, written = model.fleet, json.loads(read_inside(folder, DESCRIPTION, LONGEST_DESCRIPTION))
    low, high = corners(fleet.data.summaries_along_arc(fleet.coordinates.longitude))
    words, units = in_words(model), theta_units(model)
    facts: dict[str, Any] = {
        "model": str(folder),
        "format": written["version"],
        "written_by": str(written.get("written_by", "")),
        "written_at": str(written.get("written_at", "")),
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        "target": model.target,
        "units": dict(fleet.units),
        "inputs": {
            name: {"low": float(a), "high": float(b), "unit": input_unit(model, name)}
            for name, a, b in zip(model.inputs, low, high, strict=True)
        },
        "agents": dict(zip(model.agents, fleet.data.counts, strict=True)),
        "rows_in_folder": fleet.data.in_memory,
        "kept_rows": sum(fleet.kept_rows),
        "kept_groups": sum(map(len, fleet.kept_groups)),
        "links": len(fleet.graph.union.edges),
        "graphs": fleet.graph.period,
        "theta": {
            name: {"value": value, "unit": units[name], "meaning": words[name]} for name, value in model.theta.items()
        },
        **settings_of(fleet),
        "status": model.status,
        "note": model.note,
    }
    names = ("method", "status", "rounds", "disagreement", "nll", "at_bounds", "known", "sent", "compared")
    training = written.get("training", {})
    facts["training"] = {name: training[name] for name in names if name in training} or None
    facts["calibration"] = written.get("calibration")
    return facts


def in_words(model: Model) -> dict[str, str]:
    """What each hyperparameter says of the field, in a sentence."""
    units, straight = theta_units(model), without_bend(model)
    words = {name: _meaning(name, f"{value:.3g}", units[name], model) for name, value in model.theta.items()}
    return words | {name: f"no bend along {along}: it is far beyond the data" for name, along in straight.items()}


def theta_units(model: Model) -> dict[str, str]:
    """The unit of each hyperparameter; empty where there is none, or it is unknown."""
    fleet, inputs = model.fleet, model.inputs
    km = (fleet.coordinates.longitude, fleet.coordinates.latitude) if _in_kilometres(model) else ()
    own = ["km" if d in km else input_unit(model, name) for d, name in enumerate(inputs)]
    target = fleet.units.get(model.target, "")
    kinds = fleet.kernel.units(fleet.dimension)
    result = [own[kind] if kind >= 0 else target if kind == OBSERVED else "" for kind in kinds]
    return dict(zip(fleet.names, result, strict=True))


def without_bend(model: Model) -> dict[str, str]:
    """By the names of length-scales far beyond the width of the data, the inputs along which the field has no bend."""
    fleet = model.fleet
    low, high = corners(fleet.data.summaries_along_arc(fleet.coordinates.longitude))
    units, far = theta_units(model), FAR_IF_ROUGH if "matern12" in fleet.kernel.name else FAR
    result = {}
    for (name, value), kind in zip(model.theta.items(), fleet.kernel.units(fleet.dimension), strict=True):
        bare = name.rpartition(".")[2]
        if kind < 0 or bare != f"l_{model.inputs[kind]}":
            continue
        width = float(high[kind] - low[kind]) * (DEGREE if units[name] == "km" and _in_kilometres(model) else 1.0)
        if value > far * width > 0.0:
            result[name] = model.inputs[kind]
    return result


def _in_kilometres(model: Model) -> bool:
    return model.fleet.coordinates.name in ("kilometres", "sphere")


def input_unit(model: Model, name: str) -> str:
    unit = model.fleet.units.get(name) or coordinate_facts(name, {}).get("units", "")
    return SHORT.get(unit, unit.partition(" since ")[0])


def _meaning(name: str, value: str, unit: str, model: Model) -> str:
    part, _, bare = name.rpartition(".")
    much, of = f"{value} {unit}" if unit else value, f" (part {part})" if part else ""
    if bare == "l" or bare.startswith("l_"):
        along = f"along {bare[2:]}" if bare[2:] in model.inputs else "in all directions"
        return f"the field changes over about {much} {along}{of}"
    if bare.startswith("period_"):
        return f"it repeats every {much} along {bare.removeprefix('period_')}{of}"
    if bare.startswith("sigma_eps"):
        whose = bare.removeprefix("sigma_eps").removeprefix("_")
        return f"an observation{f' of {_agent(whose, model)}' if whose else ''} is off by about {much}"
    if bare.startswith("sigma_f"):
        term = bare.removeprefix("sigma_f")
        where = f" by term {term} of the kernel" if term else ""
        return f"{model.target} varies by about {much} around its mean{where}{of}"
    if bare == "alpha":
        return f"length-scales are mixed: the smaller this number, the more of them{of}"
    return f"{much}{of}"


def _agent(name: str, model: Model) -> str:
    """Of noise="agents" the groups are called by the agents' numbers."""
    if model.fleet.noise == "agents" and name.isdigit() and int(name) < len(model.agents):
        return model.agents[int(name)]
    return name


def describe_coordinates(facts: Mapping[str, Any]) -> str:
    """Describe in a sentence how the model sees inputs and observations; empty if as given."""
    seen = {"kilometres": "on a plane in kilometres", "sphere": "on the sphere", "scaled": "scaled by their deviations"}
    parts = [f"inputs are taken {seen[facts['coordinates']]}"] if facts["coordinates"] in seen else []
    parts += ["observations are centred and scaled by the fleet's own mean and deviation"] if facts["normalize"] else []
    parts += [f"the mean function is {facts['mean']}"] if facts["mean"] != "zero" else []
    parts += ["observations have known deviations of their own"] if facts["deviations"] else []
    parts += ["agents differ in their noise"] if facts["noise"] else []
    parts += ["outliers are weighed down"] if facts["robust"] else []
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
