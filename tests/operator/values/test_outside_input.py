"""Objects that tenants write: their labels, annotations and statuses are read or refused, never fatal."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_api.quantities import parse_time
from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.values.names import (
    DIGEST,
    ELASTIC,
    GPU_TYPE,
    LABEL_ATTEMPT,
    LABEL_PLAN,
    NUDGED,
)
from rightsizer_operator.values.pods import Pod
from rightsizer_operator.values.snapshot import AttemptJob
from rightsizer_operator.values.vendors import NVIDIA

TEXT = st.text(max_size=40) | st.sampled_from(
    ["2026-13-01T00:00:00Z", "2026-01-01", "9" * 30, "NaN", "-1", "1e300", "\x1b[2J"]
)
NOTES = st.dictionaries(st.sampled_from([DIGEST, ELASTIC, GPU_TYPE, NUDGED]), TEXT)
LABELS = st.dictionaries(st.sampled_from([LABEL_ATTEMPT, LABEL_PLAN]), TEXT)
METADATA = {"namespace": "team", "name": "demo-a1", "uid": "j-1", "resourceVersion": "7"}


@pytest.mark.parametrize(
    "text", [None, "", 7, "yesterday", "2026-01-01", "2026-01-01T00:00:00", "9999-99-99T99:99:99Z", "\x1b[2J"]
)
def test_an_invalid_timestamp_is_none(text):
    assert parse_time(text) is None


def test_a_moment_has_a_time_zone():
    assert parse_time("2026-01-01T00:00:00Z") == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@given(notes=NOTES, labels=LABELS, limit=TEXT | st.integers())
def test_no_job_that_a_tenant_writes_raises_or_claims_gpus(notes, labels, limit):
    containers = [{"resources": {"limits": {NVIDIA.resource: limit}}}]
    metadata = METADATA | {"annotations": notes, "labels": labels}
    raw = {
        "metadata": metadata,
        "spec": {"parallelism": 10**6, "template": {"spec": {"containers": containers}}},
    }
    cache = Cache()
    cache.set_job(raw)
    assert AttemptJob.of(raw).gpus_per_pod >= 0
    assert not any(cache.inventory(without=("team", "x")).held.values())


@given(labels=LABELS, message=TEXT, finished=TEXT)
def test_no_pod_that_a_tenant_writes_raises(labels, message, finished):
    ended = {"terminated": {"exitCode": 1, "message": message, "finishedAt": finished}}
    raw = {"metadata": METADATA | {"labels": labels}, "status": {"containerStatuses": [{"state": ended}]}}
    assert Pod.of(raw).exit_code == 1
    assert "\x1b" not in Pod.of(raw).message
