"""Times as numbers, and back."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.data.times import (
    TimeUnit,
    are_dates_as_text,
    are_times,
    check_time_unit,
    numbers_of_times,
    time_unit_of,
    times_of_numbers,
    units_of_times,
)
from fleetgp.errors import InputError

SECONDS: dict[TimeUnit, float] = {"days": 86400.0, "hours": 3600.0, "seconds": 1.0}
MOMENTS = st.datetimes(datetime(1920, 1, 1), datetime(2050, 1, 1))


@given(st.lists(MOMENTS, min_size=1, max_size=20), st.sampled_from(list(SECONDS)))
def test_times_come_back_to_the_microsecond(moments: list[datetime], unit: TimeUnit) -> None:
    times = np.array(moments, dtype="datetime64[us]")
    numbers = numbers_of_times(times, unit, "t")
    expected = [moment.replace(tzinfo=UTC).timestamp() / SECONDS[unit] for moment in moments]
    np.testing.assert_allclose(numbers, expected, rtol=1e-12)
    assert (times_of_numbers(numbers, unit) == times).all()
    series = pd.Series(times).dt.tz_localize("UTC").dt.tz_convert("America/New_York")
    assert are_times(series)
    np.testing.assert_array_equal(numbers_of_times(series, unit, "t"), numbers)
    texts = [moment.isoformat() for moment in moments]
    assert are_dates_as_text(texts)
    np.testing.assert_array_equal(numbers_of_times(np.array(texts, dtype=object), unit, "t"), numbers)


def test_what_is_missing_stays_missing_and_what_is_wrong_is_told() -> None:
    found = numbers_of_times(np.array(["2021-01-01", None, "", "2021-01-02 12:00Z"], dtype=object), "days", "t")
    np.testing.assert_array_equal(found, [18628.0, np.nan, np.nan, 18629.5])
    with pytest.raises(InputError, match=r"column 'day': expected a date like 2021-01-31.*got '2021-13-01'"):
        numbers_of_times(np.array(["2021-13-01"], dtype=object), "days", "column 'day'")
    assert not are_dates_as_text(["2021-01-01", "warm"])
    assert not are_dates_as_text(["", None])
    assert not are_times(np.zeros(2))
    with pytest.raises(InputError, match="time_unit"):
        check_time_unit("weeks")


@pytest.mark.parametrize("unit", list(SECONDS))
def test_units_are_told_and_understood(unit: TimeUnit) -> None:
    assert time_unit_of(units_of_times(unit)) == unit
    assert time_unit_of(f"{unit} since 2000-01-01") is None
