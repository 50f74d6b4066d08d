"""The table of what each method may send: against what it does send, and against the document."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fleetgp as fg
from fleetgp.fleet.privacy import PRIVATE, kinds_of_prediction, refusal, withheld
from fleetgp.prediction import prediction_method
from fleetgp.training import training_method
from tests.conftest import paper_shards

#: Most trainings here are cut short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fleetgp.NotConvergedWarning")

THETA = (1.2, 0.3, 1.3, 0.1)
DOCUMENT = Path(__file__).parents[2] / "docs" / "privacy.md"


def fleet(kernel: str = "se") -> fg.Fleet:
    return fg.Fleet(paper_shards(120, 4), "path", kernel=kernel, normalize=True)


@pytest.mark.parametrize("method", fg.TRAINING_METHODS)
def test_a_training_sends_these_kinds(method: str) -> None:
    row = training_method(method)
    fit = fleet().train(method, rounds=3, tol=1e-2)
    spare = {"moments", "statistics"} if method == "full-gp" else set()  # only of data in files
    assert set(fit.ledger.kinds) == set(row.kinds) - spare


@pytest.mark.parametrize(
    ("method", "kernel"),
    [(name, kernel) for name in fg.PREDICTION_METHODS for kernel in ("se", "matern32")[: 1 + (name != "dec-full-gp")]],
)
def test_an_answer_sends_these_kinds(method: str, kernel: str) -> None:
    row, own = prediction_method(method), fleet(kernel)
    own.theta = np.array(THETA)
    found = own.predict([[0.5, 0.5], [1.5, 1.0]], method)
    spare = {"full-gp": {"moments"}, "dec-full-gp": {"participants"}}.get(method, set())  # of files, of new rows
    assert set(found.ledger.kinds) == set(kinds_of_prediction(row, own.kernel)) - spare


@pytest.mark.filterwarnings("ignore:.*no better known")  # after so few rounds
@pytest.mark.parametrize("method", [m for m in fg.PREDICTION_METHODS if "consensus" in prediction_method(m).options])
def test_averages_send_words_about_stopping_besides(method: str) -> None:
    own = fleet("matern32")
    own.theta = np.array(THETA)
    found = own.predict([[0.5, 0.5], [1.5, 1.0]], method, consensus="average", rounds=60)
    allowed = kinds_of_prediction(prediction_method(method), own.kernel, consensus="average")
    assert "stopping" in found.ledger.kinds
    assert set(found.ledger.kinds) <= set(allowed)


def test_the_document_has_the_table() -> None:
    """A row for each set of kinds, with the methods that may send just these."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name in fg.TRAINING_METHODS:
        rows.setdefault(("training", ", ".join(training_method(name).kinds)), []).append(f"`{name}`")
    for name in fg.PREDICTION_METHODS:
        kinds = kinds_of_prediction(prediction_method(name))
        rows.setdefault(("prediction", ", ".join(kinds)), []).append(f"`{name}`")
    text = DOCUMENT.read_text(encoding="utf-8")
    for (task, sent), methods in rows.items():
        assert f"| {task}: {', '.join(methods)} | {sent} |" in text


@pytest.mark.parametrize("private", PRIVATE)
def test_what_is_refused_is_what_sends_it(private: str) -> None:
    for name in fg.TRAINING_METHODS:
        row = training_method(name)
        told = set(row.kinds) & set(withheld(private))  # type: ignore[arg-type]
        likely = private == "likelihoods" and row.meet in ("tree", "minimize")
        assert bool(refusal(row, private)) == (bool(told) or likely)  # type: ignore[arg-type]
    for name in fg.PREDICTION_METHODS:
        method = prediction_method(name)
        sent = set(kinds_of_prediction(method)) & set(withheld(private))  # type: ignore[arg-type]
        assert bool(refusal(method, private)) == bool(sent)  # type: ignore[arg-type]


def test_nothing_is_refused_where_nothing_is_private() -> None:
    assert not any(refusal(training_method(name), None) for name in fg.TRAINING_METHODS)
    with pytest.raises(fg.InputError, match="unknown private 'everything': choose one of rows, sums, likelihoods"):
        withheld("everything")  # type: ignore[arg-type]
