import dataclasses
import datetime as dt
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from rightsizer_launch.worker import metrics as agent
from rightsizer_launch.worker.metrics import TrainMetrics
from rightsizer_operator.measure.agent_metrics import MetricsTooLarge, parse_agent_metrics, progress_of

GOOD = {agent.POSITION: "1000", agent.TOKENS_PER_SECOND: "5", agent.STEP: "7", agent.WORKERS: "2"}
SAVED = dt.datetime(2025, 10, 9, 8, 53, 20, tzinfo=dt.UTC)
NUMBERS = st.sampled_from(
    ["NaN", "+Inf", "-Inf", "-1", "1e300", "1e-300", "0", "7", "", "x", "1_0", "0x1p3", "\u0661"]
)


def scrape(**changes):
    """The text of a scrape, some values changed."""
    values = GOOD | {f"rightsizer_train_{name}": value for name, value in changes.items()}
    return "".join(f"{name} {value}\n" for name, value in values.items())


def finite(progress):
    """Whether every number of it is finite."""
    numbers = [v for v in dataclasses.asdict(progress).values() if isinstance(v, int | float)]
    return all(math.isfinite(number) for number in numbers)


@pytest.mark.parametrize(
    ("name", "value", "field", "read"),
    [
        ("step", "NaN", "step", 0),
        ("workers", "NaN", "workers", None),
        ("workers", "1e300", "workers", None),
        ("restarts", "+Inf", "restarts", 0),
        ("loss", "NaN", "loss", None),
        ("checkpoint_timestamp_seconds", "1e300", "checkpoint_at", None),
        ("checkpoint_timestamp_seconds", "1760000000", "checkpoint_at", SAVED),
        ('phase{phase="root"}', "1", "phase", ""),
        ("phase", "1", "phase", ""),
        ('phase{phase="training"}', "1", "phase", "training"),
    ],
)  # fmt: skip
def test_values_out_of_bounds_count_as_absent(name, value, field, read):
    assert getattr(parse_agent_metrics(scrape(**{name: value})), field) == read


@pytest.mark.parametrize("name", ["position_tokens", "tokens_per_second"])
@pytest.mark.parametrize("value", ["NaN", "-5", "1e300", "+Inf", "many"])
def test_without_a_sound_position_and_rate_there_is_no_progress(name, value):
    assert parse_agent_metrics(scrape(**{name: value})) is None


@given(st.dictionaries(st.sampled_from([n.removeprefix("rightsizer_train_") for n in agent.NAMES]), NUMBERS))
def test_whatever_a_worker_serves_is_finite_or_nothing(changes):
    progress = parse_agent_metrics(scrape(**changes))
    assert progress is None or finite(progress)


@given(st.text(alphabet='rightsze_an{}="#\n 0.eTYP\\,' + "\x00\u00e9", max_size=200))
def test_no_text_raises(text):
    progress = parse_agent_metrics(scrape() + text)
    assert progress is None or finite(progress)


def test_what_the_agent_serves_is_read_beside_any_other_metrics():
    metrics = TrainMetrics()
    metrics.set(position_tokens=3e6, tokens_per_second=50.0, step=7)
    metrics.spend(checkpoint=1.5)
    metrics.enter("training")
    served = generate_latest(metrics.registry)
    alone = parse_agent_metrics(served.decode())
    assert (alone.checkpoint_s, alone.phase) == (1.5, "training")
    others = b'other{rightsizer_train_step="1"} 4\nrightsizer_training_step 9\nmalformed {\n\xff 1\n'
    assert progress_of(others + served + others * 1_000) == alone


@given(st.text(alphabet='ab{}="# 1\n', max_size=400), st.integers(0, 900))
def test_a_response_is_parsed_only_if_our_own_lines_are_short(others, lines):
    ours = scrape() + 'rightsizer_train_loss{a_label="of some length"} 1\n' * lines
    found = progress_of(f"{others}\n{ours}{others}".encode())
    assert isinstance(found, MetricsTooLarge) == (len(ours) - 1 > 32_768)
