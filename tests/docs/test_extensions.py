"""The site's own extensions: docstrings as they are written here, and formulas."""

from __future__ import annotations

import doctest
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.docs.pages import ROOT

docutils_core = pytest.importorskip("docutils.core")
nodes = pytest.importorskip("docutils.nodes")
pytest.importorskip("sphinx")
sys.path.insert(0, str(ROOT / "docs" / "_ext"))
import house_docstrings  # noqa: E402
import mathml  # noqa: E402
from house_docstrings import as_rst, escaped, shortened  # noqa: E402


def rendered(text: str) -> str:
    """As docutils understands it: whatever is wrong with it is an error."""
    settings = {"halt_level": 2, "report_level": 2, "warning_stream": False, "output_encoding": "unicode"}
    return str(docutils_core.publish_parts(text, writer="html5", settings_overrides=settings)["body"])


@given(st.text(alphabet="ab1 _*|\\:<>`.'(", max_size=30))
def test_prose_stands_for_itself(text: str) -> None:
    """Stars, bars, underscores and backslashes are not markup, however they come together."""
    plain = "a " + text.replace("`", "") + " b"
    shown = rendered(escaped(plain)).replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"')
    assert " ".join(shown.removeprefix("<p>").replace("</p>", "").split()) == " ".join(plain.split())


def test_arguments_become_definitions() -> None:
    told = [
        "Agree on theta.",
        "",
        "theta0: where to start, (P,), or",
        "    several, (S, P).",
        "rounds, tol: stop after these.",
        "kappa (dec-apx-gp, x), rho (c-gp): stiffness.",
        "",
        "    x <- x + 1",
        "",
        ">>> 1 + 1",
        "2",
    ]
    html = rendered("\n".join(as_rst(told)))
    assert html.count("<dt>") == 3
    assert html.count("<dd>") == 3
    assert "where to start, (P,), or several, (S, P)." in html
    assert '<span class="docutils literal">rho</span> (c-gp)' in html
    assert "x &lt;- x + 1" in html
    assert "doctest" in html


def test_prose_with_a_colon_stays_prose() -> None:
    assert "<dl" not in rendered("\n".join(as_rst(["One line.", "", "Exit codes: none of these are arguments."])))


def test_a_line_of_prose_may_end_a_list_of_arguments() -> None:
    html = rendered("\n".join(as_rst(["a: first", "    and more.", "Then prose, at the margin."])))
    assert html.index("</dl>") < html.index("Then prose")


def test_examples_of_the_extension() -> None:
    failed, attempted = doctest.testmod(house_docstrings)
    assert failed == 0
    assert attempted >= 3


def test_arrays_have_short_names() -> None:
    written = "(y: ~numpy.ndarray[tuple[~typing.Any, ...], ~numpy.dtype[~numpy.int64]] | None)"
    assert shortened(written) == "(y: IntArray | None)"


@pytest.mark.parametrize("formula", [r"\frac12 x", r"\unknown{x}", r"\begin{align*} a &= b \end{align*}"])
def test_formulas_that_would_be_wrong_are_refused(formula: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(mathml.LOGGER, "warning", lambda message, *values, **_: told.append(message % values))
    assert mathml.converted(nodes.math(), formula, block=True) == ""
    assert len(told) == 1


def test_formulas_are_converted() -> None:
    found = mathml.converted(nodes.math(), r"\frac{1}{2} \sum_{i=1}^{M} \ell_i", block=True)
    assert found.startswith("<math")
    assert "<mfrac>" in found
    assert found.count("<mn>2</mn>") == 1
