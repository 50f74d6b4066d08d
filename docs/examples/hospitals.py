"""A hospital network's dose response in five inputs: no patient leaves a hospital."""

import warnings

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.figure import Figure

import fleetgp as fg

rcParams["font.size"] = 8
INPUTS = ["log_dose", "age", "weight", "clearance", "baseline"]
#: Mean age (years) and usual dose (mg) of the patients of each hospital.
HOSPITALS = {"North": (38, 60), "East": (45, 90), "South": (52, 40), "West": (70, 30), "Lake": (57, 110)}


def response(p: pd.DataFrame) -> pd.Series:
    """Fall of the blood pressure (mmHg): saturates with the dose, whose effect hangs on weight, kidneys and age."""
    level = np.exp(p["log_dose"]) / p["weight"] * 75.0 * (100.0 / (20.0 + p["clearance"])) ** 0.7
    strongest = 8.0 + 0.25 * (p["baseline"] - 120.0) + 0.06 * (p["age"] - 40.0)
    return strongest * level**1.8 / (35.0**1.8 + level**1.8)


def patients(count: int, seed: int) -> pd.DataFrame:
    """A row for each patient: the five inputs, the fall that was seen, and the hospital."""
    rng, parts = np.random.default_rng(seed), []
    for hospital, (age, dose) in HOSPITALS.items():
        p = pd.DataFrame({"log_dose": rng.normal(np.log(dose), 0.45, count), "age": rng.normal(age, 10.0, count)})
        p["weight"] = rng.normal(76.0, 13.0, count).clip(45.0, 130.0)
        p["clearance"] = (130.0 - 0.9 * p["age"] + rng.normal(0.0, 18.0, count)).clip(15.0, 140.0)
        p["baseline"] = rng.normal(150.0, 14.0, count).clip(120.0, 200.0)
        parts.append(p.assign(fall=response(p) + rng.normal(0.0, 2.0, count), hospital=hospital))
    return pd.concat(parts, ignore_index=True)


def trained(table: pd.DataFrame) -> fg.Fleet:
    shards = [(rows[INPUTS], rows["fall"]) for _, rows in table.groupby("hospital")]
    fleet = fg.Fleet(shards, "cycle", kernel="se", coordinates="scaled", mean="linear", normalize=True)
    fleet.train("dec-fact-gp", tol=1e-3)  # tells sums of likelihoods and their derivatives
    return fleet


def main(quick: bool = False) -> tuple[Figure, dict[str, float]]:
    table, others = patients(70 if quick else 120, seed=1), patients(20 if quick else 100, seed=2)
    network = trained(table)
    together = network.score(others[INPUTS], others["fall"], method="dec-rbcm")  # tells beliefs, and no patient
    with warnings.catch_warnings():  # FleetGP says which patients are unlike all that a hospital alone has seen
        warnings.simplefilter("ignore", fg.FleetGPWarning)
        single = [trained(table[table["hospital"] == name]) for name in HOSPITALS]
        alone = [one.score(others[INPUTS], others["fall"], method="full-gp").rmse for one in single]

    figure = Figure(figsize=(9.0, 3.0), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[1.3, 1.0, 1.0])
    line = pd.DataFrame({"log_dose": np.log(dose := np.geomspace(10, 200, 60)), "weight": 75, "baseline": 150})
    for age, clearance, colour in ((40, 95, "#0072B2"), (75, 40, "#D55E00")):
        patient = line.assign(age=age, clearance=clearance)
        out = network.predict(patient, "dec-rbcm")
        left.fill_between(dose, *out.interval(0.95, observed=False), color=colour, alpha=0.2, linewidth=0)
        left.plot(dose, out.mean, color=colour, label=f"{age} years, clearance {clearance} mL/min")
        left.plot(dose, response(patient), color=colour, linestyle=":", linewidth=1.2)
    left.set(
        xlabel="dose (mg)", ylabel="fall of blood pressure (mmHg)", title="Together; dotted: the truth", xscale="log"
    )
    left.set_xticks([10, 20, 50, 100, 200], ["10", "20", "50", "100", "200"])
    left.legend(frameon=False, loc="lower right")
    middle.barh(list(HOSPITALS), alone, color="0.65")
    middle.axvline(together.rmse, color="#0072B2")
    middle.set(xlabel="error for patients of all hospitals (mmHg)", title="Alone (bars), together (line)")
    matters = [table[name].std() / network.last_fit.named[f"l_{name}"] for name in INPUTS] if network.last_fit else []
    right.barh(INPUTS, matters, color="#0072B2")
    right.set(xlabel="spread of the input / length-scale", title="What matters")
    numbers = {"error of the best hospital alone, mmHg": min(alone), "of the worst, mmHg": max(alone)}
    return figure, numbers | {"error together, mmHg": together.rmse, "share in 95% intervals": together.coverage}


if __name__ == "__main__":
    drawn, found = main()
    drawn.savefig("hospitals.png", dpi=150)
    print(*(f"{name}: {value:.3g}" for name, value in found.items()), sep="\n")
