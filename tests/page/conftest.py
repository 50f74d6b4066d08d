"""One browser for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.page.browsers import started_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with started_browser() as found:
        yield found
