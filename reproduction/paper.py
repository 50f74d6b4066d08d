"""What the paper reports, transcribed as data, each with the place it comes from.

Kontoudis and Stilwell, "Fully Decentralized, Scalable Gaussian Processes for Multi-Agent Federated Learning". Tables
and figures are numbered in the order in which they stand there.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetgp.prediction import PREDICTION_METHODS

SOURCES = {
    "training": "Table 6, Time & Communication Rounds of GP Training Methods",
    "hyperparameters": "Figures 8 and 9 (drawn, not tabulated)",
    "nearest": "Table 7, Decentralized CBNN Aggregation Methods",
    "quality": "Table 8, Qualitative Assessment of Decentralized GP Methods",
    "training communication": "Tables 1, 3 and 4",
    "central communication": "Table 2",
    "prediction communication": "Table 5",
}

FLEETS = (4, 10, 20, 40)
SIZES = (8_100, 32_400)


@dataclass(frozen=True)
class Trained:
    """Seconds per agent and rounds of a training; None where the paper has none, and then why."""

    seconds: float | None
    rounds: float | None
    why: str = ""


_NOT_RUN = "not run by the paper: too slow"
_TOO_LONG = "over the paper's limit of 3,000 s"


def _columns(small: tuple[float, float], large: tuple[float, float] | str) -> dict[int, Trained]:
    second = Trained(None, None, large) if isinstance(large, str) else Trained(*large)
    return {8_100: Trained(*small), 32_400: second}


#: Rounds of the decentralized methods are fixed at 100.
_TABLE: dict[int, dict[str, dict[int, Trained]]] = {
    4: {
        "fact-gp": _columns((75.9, 186.0), (2361.9, 196.0)),
        "g-fact-gp": _columns((332.1, 160.0), _TOO_LONG),
        "c-gp": _columns((404.1, 141.4), _NOT_RUN),
        "apx-gp": _columns((26.8, 43.6), (817.6, 45.2)),
        "gapx-gp": _columns((67.3, 39.7), (2074.2, 42.1)),
        "dec-c-gp": _columns((414.1, 100.0), _NOT_RUN),
        "dec-apx-gp": _columns((61.9, 100.0), (1821.3, 100.0)),
        "dec-gapx-gp": _columns((328.1, 100.0), _TOO_LONG),
    },
    10: {
        "fact-gp": _columns((9.8, 179.6), (228.2, 194.2)),
        "g-fact-gp": _columns((31.8, 131.8), (1035.6, 155.2)),
        "c-gp": _columns((92.1, 193.8), _NOT_RUN),
        "apx-gp": _columns((3.8, 47.8), (88.8, 46.8)),
        "gapx-gp": _columns((15.1, 42.2), (522.2, 44.3)),
        "dec-c-gp": _columns((82.4, 100.0), _NOT_RUN),
        "dec-apx-gp": _columns((8.4, 100.0), (188.8, 100.0)),
        "dec-gapx-gp": _columns((38.5, 100.0), (1123.4, 100.0)),
    },
    20: {
        "fact-gp": _columns((2.6, 172.6), (46.6, 226.2)),
        "g-fact-gp": _columns((7.0, 127.2), (199.4, 167.6)),
        "c-gp": _columns((31.4, 127.8), _NOT_RUN),
        "apx-gp": _columns((1.3, 56.2), (18.3, 49.8)),
        "gapx-gp": _columns((4.1, 50.6), (85.8, 45.6)),
        "dec-c-gp": _columns((30.4, 100.0), _NOT_RUN),
        "dec-apx-gp": _columns((2.2, 100.0), (36.9, 100.0)),
        "dec-gapx-gp": _columns((8.1, 100.0), (185.8, 100.0)),
    },
    40: {
        "fact-gp": _columns((0.5, 139.6), (9.1, 160.0)),
        "g-fact-gp": _columns((1.8, 112.2), (30.9, 128.6)),
        "c-gp": _columns((8.9, 66.6), _NOT_RUN),
        "apx-gp": _columns((0.3, 56.4), (4.6, 54.4)),
        "gapx-gp": _columns((1.2, 51.2), (17.9, 49.2)),
        "dec-c-gp": _columns((9.1, 100.0), _NOT_RUN),
        "dec-apx-gp": _columns((0.5, 100.0), (8.2, 100.0)),
        "dec-gapx-gp": _columns((2.5, 100.0), (36.4, 100.0)),
    },
}
#: The training methods that the paper has.
TRAINERS = ("full-gp", *_TABLE[4])
#: The prediction methods that it has.
PREDICTORS = tuple(name for name in PREDICTION_METHODS if name not in ("dec-full-gp", "dec-nearest"))
FULL_GP = {8_100: Trained(2114.2, None), 32_400: Trained(None, None, _NOT_RUN)}


def trained(method: str, size: int, agents: int) -> Trained:
    """The paper's row.

    >>> trained("gapx-gp", 32_400, 40)
    Trained(seconds=17.9, rounds=49.2, why='')
    """
    if method == "full-gp":
        return FULL_GP.get(size, Trained(None, None, "another size"))
    return _TABLE.get(agents, {}).get(method, {}).get(size, Trained(None, None, "another size"))


@dataclass(frozen=True)
class Nearest:
    """Agents that took part in a point (mean, deviation), seconds per agent, rounds."""

    participants: tuple[float, float]
    seconds: float
    rounds: float


_PARTICIPANTS = {4: (2.3, 0.1), 10: (5.7, 0.2), 20: (11.3, 0.4), 40: (23.6, 1.1)}
_NEAREST: dict[int, dict[str, tuple[float, float]]] = {
    4: {
        "dec-nn-poe": (0.0312, 3.6),
        "dec-nn-gpoe": (0.0339, 3.6),
        "dec-nn-bcm": (0.0323, 3.6),
        "dec-nn-rbcm": (0.0469, 3.6),
        "dec-nn-grbcm": (0.0516, 3.6),
        "dec-nn-npae": (1.1683, 69.4),
    },
    10: {
        "dec-nn-poe": (0.0122, 7.2),
        "dec-nn-gpoe": (0.0121, 7.2),
        "dec-nn-bcm": (0.0126, 7.2),
        "dec-nn-rbcm": (0.0172, 7.2),
        "dec-nn-grbcm": (0.0167, 7.2),
        "dec-nn-npae": (0.4844, 247.2),
    },
    20: {
        "dec-nn-poe": (0.0087, 6.8),
        "dec-nn-gpoe": (0.0083, 6.8),
        "dec-nn-bcm": (0.0086, 6.8),
        "dec-nn-rbcm": (0.0126, 7.0),
        "dec-nn-grbcm": (0.0124, 7.0),
        "dec-nn-npae": (0.2698, 625.6),
    },
    40: {
        "dec-nn-poe": (0.0052, 7.4),
        "dec-nn-gpoe": (0.0049, 7.4),
        "dec-nn-bcm": (0.0051, 7.4),
        "dec-nn-rbcm": (0.0073, 7.4),
        "dec-nn-grbcm": (0.0071, 7.4),
        "dec-nn-npae": (2.7009, 1824.1),
    },
}
#: The fewest and the most rounds of the dec-nn- methods that average: all but dec-nn-npae.
_AVERAGED = [rounds for row in _NEAREST.values() for method, (_, rounds) in row.items() if method != "dec-nn-npae"]
NEAREST_ROUNDS = (min(_AVERAGED), max(_AVERAGED))
#: The share of agents that CBNN leaves out, as the text has it.
LEFT_OUT = 0.425


def nearest(method: str, agents: int) -> Nearest | None:
    """The paper's row of a dec-nn- method.

    >>> nearest("dec-nn-grbcm", 20)
    Nearest(participants=(11.3, 0.4), seconds=0.0124, rounds=7.0)
    """
    found = _NEAREST.get(agents, {}).get(method)
    return None if found is None else Nearest(_PARTICIPANTS[agents], *found)


#: RMSE, NLPD, communication, scalability.
QUALITY = {
    "dec-nn-gpoe": ("Moderate", "Moderate", "Excellent", "Excellent"),
    "dec-nn-rbcm": ("Excellent", "Bad", "Excellent", "Excellent"),
    "dec-nn-grbcm": ("Excellent", "Excellent", "Excellent", "Excellent"),
    "dec-npae-star": ("Excellent", "Excellent", "Bad", "Moderate"),
    "dec-nn-npae": ("Bad", "Moderate", "Moderate", "Bad"),
}

#: Scalars that the paper's formulas count. s: rounds; chi = s card(N_i); xi = N^2/M^2 + D N/M.
COMMUNICATION = {
    "fact-gp": "s M (D + 2)",
    "g-fact-gp": "s M (D + 2)",
    "c-gp": "s M (D + 2)",
    "apx-gp": "s M (D + 2)",
    "gapx-gp": "s M (D + 2)",
    "dec-c-gp": "s (D + 2), per agent",
    "dec-apx-gp": "s (D + 2), per agent",
    "dec-gapx-gp": "s (D + 2), per agent",
    "poe": "2 M",
    "gpoe": "2 M",
    "bcm": "2 M",
    "rbcm": "3 M",
    "grbcm": "5 M",
    "npae": "M^2",
    "dec-poe": "2 chi",
    "dec-gpoe": "2 chi",
    "dec-bcm": "2 chi",
    "dec-rbcm": "3 chi",
    "dec-grbcm": "3 chi",
    "dec-npae": "2 M s_JOR + 2 chi + M xi",
    "dec-npae-star": "2 M (s_JOR + s_PM) + 2 chi + M xi + M^2",
}
