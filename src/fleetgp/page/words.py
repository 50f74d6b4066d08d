"""How the page puts things: short, and in the words of people on a boat."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: What an agent does, after its name.
PHASES = {
    "starting": "is starting",
    "agreeing": "looks for the others",
    "training": "is learning",
    "calibrating": "checks its intervals",
    "predicting": "is answering",
    "serving": "is ready",
    "failed": "cannot work",
    "stopped": "has stopped",
}
#: What is sent, by kind of content.
KINDS = {
    "hyperparameters": "estimates",
    "predictions": "answers",
    "inputs": "places of measurements",
    "observations": "measurements",
    "statistics": "sums",
    "stopping": "when to stop",
    "queries": "questions",
    "agenda": "what to do next",
    "moments": "sums of all data",
    "participants": "who has a say",
    "framing": "envelopes",
    "hellos": "hellos",
}


def kind_of(names: Sequence[str]) -> str:
    """What the agents are, if their names say so.

    >>> kind_of(["boat1", "boat2"]), kind_of(["Anna", "Berta"]), kind_of(["auv-1", "auv-2"])
    ('boats', 'agents', 'auvs')
    """
    stems = {re.sub(r"[\W\d_]+$", "", name) for name in names}
    stem = next(iter(stems))
    return f"{stem}s" if len(stems) == 1 and len(names) > 1 and len(stem) > 1 and not stem.endswith("s") else "agents"


def one_of(kind: str, count: int) -> str:
    """
    >>> one_of("boats", 1), one_of("boats", 3)
    ('1 boat', '3 boats')
    """
    return f"{count} {kind[:-1] if count == 1 else kind}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """
    >>> listed(["a", "b", "c"]), listed(["a"]), listed(list("abcdefgh"), 3)
    ('a, b and c', 'a', 'a, b, c and 5 more')
    """
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "nobody"


def ago(seconds: float) -> str:
    """
    >>> ago(0.2), ago(12.3), ago(200), ago(9_000), ago(400_000)
    ('1 s', '12 s', '3 min', '2 h', '4 days')
    """
    for most, unit, size in ((120.0, "s", 1.0), (7_200.0, "min", 60.0), (172_800.0, "h", 3_600.0)):
        if seconds < most:
            return f"{max(1, int(seconds // size))} {unit}"
    return f"{int(seconds // 86_400.0)} days"


def number(value: float) -> str:
    """Three digits, as people write them.

    >>> number(1.2345), number(-0.00012), number(12345.6)
    ('1.23', '-0.00012', '12300')
    """
    text = f"{value:.3g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e7 else text.replace("e-0", "e-").replace("e+0", "e+")


def estimates(theta: Mapping[str, float], inputs: Sequence[str], target: str, length_unit: str = "") -> dict[str, str]:
    """What each hyperparameter says of the field, by its name.

    >>> estimates({"l_x": 1.2, "sigma_f": 0.9, "sigma_eps": 0.1, "period": 3.0}, ["x"], "salinity")["l_x"]
    'The field changes over 1.2 along x.'
    """
    said = {}
    for name, value in theta.items():
        shown = number(value)
        base, _, rest = name.partition("_")
        if base == "l" and rest in inputs:
            said[name] = f"The field changes over {shown}{length_unit} along {rest}."
        elif name == "l":
            said[name] = f"The field changes over {shown}{length_unit}."
        elif name == "sigma_f":
            said[name] = f"Values of {target} vary by about {shown}."
        elif name == "sigma_eps":
            said[name] = f"Measurements scatter by about {shown}."
        elif name.startswith("sigma_eps_"):
            said[name] = f"Measurements of {name.removeprefix('sigma_eps_')} scatter by about {shown}."
        else:
            said[name] = f"{name} is {shown}."
    return said


def differ(disagreement: float) -> str:
    """How far neighbours are apart in log theta, in words.

    >>> differ(0.0), differ(0.02), differ(3.0)
    ('all the same', 'up to 2.02 % apart', 'far apart')
    """
    if disagreement < 1e-6:
        return "all the same"
    if disagreement > 2.0:
        return "far apart"
    return f"up to {number(100.0 * (2.718281828459045**disagreement - 1.0))} % apart"


def new_rows(name: str, count: int) -> str:
    return f"{name} has {count:,} new measurement{'' if count == 1 else 's'}."


def new_model(by: Sequence[str], status: str) -> tuple[str, str]:
    """What is said of a training that has ended, and its tone.

    >>> new_model(["a", "b"], "converged")
    ('There is a new model, learned by a and b.', 'info')
    """
    learned = f", learned by {listed(by)}" if by else ""
    ended = "" if status == "converged" else f" It ended by {status}, not by agreement."
    return f"There is a new model{learned}.{ended}", "bad" if ended else "info"


def away(presence: str, names: Sequence[str], seconds: float) -> str:
    """Who is away, and how: by the word that the table of agents has for it. seconds: for how long, if it is one.

    >>> away("gone", ["boat2"], 12.0), away("silent", ["boat2", "boat3"], 12.0)
    ('boat2 has been gone for 12 s.', 'boat2 and boat3 are silent.')
    """
    if len(names) == 1:
        return f"{names[0]} has been {presence} for {ago(seconds)}."
    return f"{listed(names, 4)} are {presence}."


def standing(
    kind: str,
    names: Sequence[str],
    missing: Mapping[str, tuple[str, float]],
    parts: Sequence[Sequence[str]],
    busy: str,
) -> str:
    """The sentence at the top. missing: who is "gone" or "silent", and for how many seconds.  busy: what others do.

    >>> standing("boats", ["boat1", "boat2", "boat3"], {"boat2": ("gone", 12.0)}, [["boat1", "boat3"]], "")
    '2 of 3 boats are there. boat2 has been gone for 12 s.'
    >>> standing("boats", ["boat1", "boat2"], {}, [["boat1"], ["boat2"]], "")
    'All 2 boats are there. They are in 2 parts that do not hear each other: boat1; boat2.'
    """
    there = len(names) - len(missing)
    if not there:
        return f"None of the {one_of(kind, len(names))} answers."
    verb = "is" if there == 1 else "are"
    whole = f"All {one_of(kind, there)} {verb} there."
    said = [f"{there} of {len(names)} {kind} {verb} there." if missing else whole]
    for presence in ("gone", "silent"):
        such = [name for name in names if missing.get(name, ("",))[0] == presence]
        if such:
            said.append(away(presence, such, missing[such[0]][1]))
    if len(parts) > 1:
        told = "; ".join(listed(list(part), 4) for part in parts)
        said.append(f"They are in {len(parts)} parts that do not hear each other: {told}.")
    return " ".join([*said, *([busy] if busy else [])])
