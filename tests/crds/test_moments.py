"""Moments that plans state and estimates lead to."""

import datetime as dt

from hypothesis import example, given
from hypothesis import strategies as st

from rightsizer_api.quantities import LATEST, format_time, later, parse_time

MOMENTS = st.datetimes(min_value=dt.datetime(1, 1, 2), max_value=LATEST.replace(tzinfo=None))


@given(MOMENTS, st.floats(min_value=0.0, allow_nan=False))
@example(dt.datetime(2026, 11, 21), float("inf"))
@example(dt.datetime(9999, 12, 31, 23, 59, 59), 1e300)
def test_an_estimate_of_any_length_leads_to_a_date_that_is_not_before(when, seconds):
    when = when.replace(tzinfo=dt.UTC)
    end = later(when, seconds)
    assert when <= end <= LATEST
    assert parse_time(format_time(end)) == end.replace(microsecond=0)


@given(st.text() | st.datetimes(timezones=st.timezones()).map(str))
@example("0001-01-01T00:00:00+23:59")
@example("9999-12-31T23:59:59-23:59")
def test_any_text_is_a_time_that_can_be_written_or_none(text):
    found = parse_time(text)
    assert found is None or format_time(found)
