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
#: Seconds per agent and rounds, or why there are none, for each of the FLEETS. Rounds of the decentralized methods are
#: fixed at 100.
_TRAINING: dict[int, dict[str, tuple[tuple[float, float] | str, ...]]] = {
    8_100: {
        "fact-gp": ((75.9, 186.0), (9.8, 179.6), (2.6, 172.6), (0.5, 139.6)),
        "g-fact-gp": ((332.1, 160.0), (31.8, 131.8), (7.0, 127.2), (1.8, 112.2)),
        "c-gp": ((404.1, 141.4), (92.1, 193.8), (31.4, 127.8), (8.9, 66.6)),
        "apx-gp": ((26.8, 43.6), (3.8, 47.8), (1.3, 56.2), (0.3, 56.4)),
        "gapx-gp": ((67.3, 39.7), (15.1, 42.2), (4.1, 50.6), (1.2, 51.2)),
        "dec-c-gp": ((414.1, 100.0), (82.4, 100.0), (30.4, 100.0), (9.1, 100.0)),
        "dec-apx-gp": ((61.9, 100.0), (8.4, 100.0), (2.2, 100.0), (0.5, 100.0)),
        "dec-gapx-gp": ((328.1, 100.0), (38.5, 100.0), (8.1, 100.0), (2.5, 100.0)),
    },
    32_400: {
        "fact-gp": ((2361.9, 196.0), (228.2, 194.2), (46.6, 226.2), (9.1, 160.0)),
        "g-fact-gp": (_TOO_LONG, (1035.6, 155.2), (199.4, 167.6), (30.9, 128.6)),
        "c-gp": (_NOT_RUN, _NOT_RUN, _NOT_RUN, _NOT_RUN),
        "apx-gp": ((817.6, 45.2), (88.8, 46.8), (18.3, 49.8), (4.6, 54.4)),
        "gapx-gp": ((2074.2, 42.1), (522.2, 44.3), (85.8, 45.6), (17.9, 49.2)),
        "dec-c-gp": (_NOT_RUN, _NOT_RUN, _NOT_RUN, _NOT_RUN),
        "dec-apx-gp": ((1821.3, 100.0), (188.8, 100.0), (36.9, 100.0), (8.2, 100.0)),
        "dec-gapx-gp": (_TOO_LONG, (1123.4, 100.0), (185.8, 100.0), (36.4, 100.0)),
    },
}
_FULL_GP = {8_100: Trained(2114.2, None), 32_400: Trained(None, None, _NOT_RUN)}
#: The training methods that the paper has, and those of them that it proposes; the others are known before it.
TRAINERS = ("full-gp", *_TRAINING[8_100])
PROPOSED = ("gapx-gp", "dec-c-gp", "dec-apx-gp", "dec-gapx-gp")
#: The prediction methods that it has.
PREDICTORS = tuple(name for name in PREDICTION_METHODS if name not in ("dec-full-gp", "dec-nearest", "dec-summary"))


def trained(method: str, size: int, agents: int) -> Trained:
    """The paper's row.

    >>> trained("gapx-gp", 32_400, 40)
    Trained(seconds=17.9, rounds=49.2, why='')
    """
    other = Trained(None, None, "another size")
    if method == "full-gp":
        return _FULL_GP.get(size, other)
    if agents not in FLEETS or method not in _TRAINING.get(size, {}):
        return other
    entry = _TRAINING[size][method][FLEETS.index(agents)]
    return Trained(None, None, entry) if isinstance(entry, str) else Trained(*entry)


@dataclass(frozen=True)
class Nearest:
    """Agents that took part in a point (mean, standard deviation), seconds per agent, rounds."""

    participants: tuple[float, float]
    seconds: float
    rounds: float


_PARTICIPANTS = ((2.3, 0.1), (5.7, 0.2), (11.3, 0.4), (23.6, 1.1))
#: Seconds per agent and rounds for each of the FLEETS.
_NEAREST = {
    "dec-nn-poe": ((0.0312, 3.6), (0.0122, 7.2), (0.0087, 6.8), (0.0052, 7.4)),
    "dec-nn-gpoe": ((0.0339, 3.6), (0.0121, 7.2), (0.0083, 6.8), (0.0049, 7.4)),
    "dec-nn-bcm": ((0.0323, 3.6), (0.0126, 7.2), (0.0086, 6.8), (0.0051, 7.4)),
    "dec-nn-rbcm": ((0.0469, 3.6), (0.0172, 7.2), (0.0126, 7.0), (0.0073, 7.4)),
    "dec-nn-grbcm": ((0.0516, 3.6), (0.0167, 7.2), (0.0124, 7.0), (0.0071, 7.4)),
    "dec-nn-npae": ((1.1683, 69.4), (0.4844, 247.2), (0.2698, 625.6), (2.7009, 1824.1)),
}
#: The fewest and the most rounds of the dec-nn- methods that average: all but dec-nn-npae.
_AVERAGED = [rounds for method, row in _NEAREST.items() for _, rounds in row if method != "dec-nn-npae"]
NEAREST_ROUNDS = (min(_AVERAGED), max(_AVERAGED))
#: The share of agents that CBNN leaves out, as the text has it.
LEFT_OUT = 0.425


def nearest(method: str, agents: int) -> Nearest | None:
    """The paper's row of a dec-nn- method.

    >>> nearest("dec-nn-grbcm", 20)
    Nearest(participants=(11.3, 0.4), seconds=0.0124, rounds=7.0)
    """
    if agents not in FLEETS or method not in _NEAREST:
        return None
    column = FLEETS.index(agents)
    return Nearest(_PARTICIPANTS[column], *_NEAREST[method][column])


#: RMSE, NLPD, communication, scalability.
QUALITY = {
    "dec-nn-gpoe": ("Moderate", "Moderate", "Excellent", "Excellent"),
    "dec-nn-rbcm": ("Excellent", "Bad", "Excellent", "Excellent"),
    "dec-nn-grbcm": ("Excellent", "Excellent", "Excellent", "Excellent"),
    "dec-npae-star": ("Excellent", "Excellent", "Bad", "Moderate"),
    "dec-nn-npae": ("Bad", "Moderate", "Moderate", "Bad"),
}
#: The five methods that it compares at the end.
FIVE = tuple(QUALITY)

#: Scalars that the paper's formulas count. s: rounds; chi = s card(N_i); xi = N^2/M^2 + D N/M.
COMMUNICATION = {
    **dict.fromkeys(("fact-gp", "g-fact-gp", "c-gp", "apx-gp", "gapx-gp"), "s M (D + 2)"),
    **dict.fromkeys(("dec-c-gp", "dec-apx-gp", "dec-gapx-gp"), "s (D + 2), per agent"),
    **dict.fromkeys(("poe", "gpoe", "bcm"), "2 M"),
    "rbcm": "3 M",
    "grbcm": "5 M",
    "npae": "M^2",
    **dict.fromkeys(("dec-poe", "dec-gpoe", "dec-bcm"), "2 chi"),
    **dict.fromkeys(("dec-rbcm", "dec-grbcm"), "3 chi"),
    "dec-npae": "2 M s_JOR + 2 chi + M xi",
    "dec-npae-star": "2 M (s_JOR + s_PM) + 2 chi + M xi + M^2",
}
