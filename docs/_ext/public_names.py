"""`.. public-names:: GROUP`: the public names of one group, from their docstrings.

A name that is in no group is in the last one, so that none is lost.
"""

from __future__ import annotations

import inspect
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import fleetgp as fg

#: What people do -> the names that they need for it. Those of modules are after the module's name.
GROUPS: dict[str, tuple[str, ...]] = {
    "fleets": ("Fleet", "ConditionedFleet", "Outputs", "FleetGPRegressor"),
    "results": (
        "Fit",
        "Prediction",
        "Joint",
        "Gradient",
        "Suggestion",
        "Calibration",
        "TrainingNeed",
        "Removal",
        "Ledger",
        "Hyperparameters",
    ),
    "scores": (
        "score",
        "Scores",
        "CrossValidation",
        "metrics.rmse",
        "metrics.mae",
        "metrics.nlpd",
        "metrics.msll",
        "metrics.crps",
        "metrics.interval_score",
        "metrics.coverage",
    ),
    "plots": (
        "plot.field",
        "plot.map",
        "plot.convergence",
        "plot.traffic",
        "plot.reliability",
        "plot.kernels",
    ),
    "data": (
        "partition",
        "data.partition_by_label",
        "io.read_observations",
        "io.ObservationTable",
        "io.Reading",
        "io.load_sst",
        "io.SeaSurface",
        "io.download_mur",
        "synthetic_field",
        "Field",
        "PAPER_THETA",
        "PAPER_THETA0",
    ),
    "advice": ("recommend", "Advice", "Link", "verify", "Verification"),
    "models": ("Model", "save_model", "load_model"),
    "graphs": ("Graph", "GraphSequence", "io.read_edges", "Network", "InProcess", "Loopback"),
    "steps": ("Trainer", "TrainingOptions", "TrainingState", "TrainingInfo", "TRAINING_METHODS", "PREDICTION_METHODS"),
    "extending": ("register_kernel", "register_engine", "register_graph", "register_rule", "register_trainer"),
    "errors": (
        "FleetGPError",
        "FleetGPWarning",
        "NotConvergedWarning",
        "InputError",
        "GraphError",
        "NetworkError",
        "NumericalError",
    ),
}
#: Where inherited members are somebody else's: scikit-learn's have another style, and documentation of their own.
FOREIGN = ("FleetGPRegressor",)


def public_names() -> list[str]:
    """What `fleetgp` offers, and what needs an extra."""
    return sorted({*fg.__all__, *fg._HOME_OF})


def rest() -> tuple[str, ...]:
    grouped = {name for names in GROUPS.values() for name in names}
    return tuple(name for name in public_names() if name not in grouped)


def resolved(name: str) -> Any:
    found: Any = fg
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _described(name: str) -> list[str]:
    thing = resolved(name)
    path = f"fleetgp.{name}"
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return [f".. autoexception:: {path}", ""]
    if inspect.isclass(thing):
        inherited = [] if name in FOREIGN or issubclass(thing, tuple) else ["   :inherited-members:"]
        return [f".. autoclass:: {path}", "   :members:", *inherited, ""]
    if inspect.ismodule(thing):
        own = [f"{name}.{each}" for each in getattr(thing, "__all__", ())]
        return [line for each in own for line in _described(each)]
    if callable(thing):
        return [f".. autofunction:: {path}", ""]
    return [f".. py:data:: {path}", "", f"   ``{thing!r}``", ""]


def _first_line(name: str) -> str:
    thing = resolved(name)
    told = inspect.getdoc(thing) if callable(thing) or inspect.ismodule(thing) else ""
    return (told or "").split("\n\n")[0].replace("\n", " ")


class PublicNames(SphinxDirective):
    """The names of a group, each with its signature and docstring."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        group = self.arguments[0]
        names = rest() if group == "more" else GROUPS[group]
        text = "\n".join(line for name in names for line in _described(name))
        return self.parse_text_to_nodes(text or "There are none.")


class NameTable(SphinxDirective):
    """All names of a group with the first line of what is said of each."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        from house_docstrings import escaped

        group = self.arguments[0]
        lines = [".. list-table::", "   :class: names", ""]
        for name in rest() if group == "more" else GROUPS[group]:
            role = "class" if inspect.isclass(resolved(name)) else "obj"
            lines.append(f"   * - :py:{role}:`{name} <fleetgp.{name}>`")
            lines.append(f"     - {escaped(_first_line(name))}")
        return self.parse_text_to_nodes("\n".join(lines) if len(lines) > 3 else "There are none.")


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("public-names", PublicNames)
    app.add_directive("name-table", NameTable)
    return {"parallel_read_safe": True}
