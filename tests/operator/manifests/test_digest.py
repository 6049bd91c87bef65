import pytest

from rightsizer_operator.values.actions import Apply
from rightsizer_operator.values.settings import OperatorSettings

ENV = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]


def digest_of(fake_cluster, spec=None, **settings):
    """The digest on the Job that a launch creates."""
    cluster = fake_cluster(spec or {})
    cluster.settings = OperatorSettings(**settings)
    children = [action.child for action in cluster.decide() if isinstance(action, Apply)]
    (job,) = (child for child in children if child["kind"] == "Job")
    return job["metadata"]["annotations"]["rightsizer.dev/launch-digest"]


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ({"launch": {"env": ENV[::-1]}}, {}),
        ({"launch": {"env": ENV}}, {"evict_s": 7}),
        ({"launch": {"env": ENV}}, {"job_ttl_s": 7}),
    ],
    ids=["order of variables", "tolerations of this operator", "life of a finished Job"],
)
def test_what_no_worker_notices_restarts_no_training(fake_cluster, spec, settings):
    assert digest_of(fake_cluster, spec, **settings) == digest_of(fake_cluster, {"launch": {"env": ENV}})


@pytest.mark.parametrize(
    "launch",
    [
        {"env": [*ENV, {"name": "C", "value": "3"}]},
        {"env": [ENV[0], {"name": "B", "value": "3"}]},
        {"env": ENV, "image": "trainer:2"},
        {"env": ENV, "args": ["--seed=2"]},
        {"env": ENV, "podTemplate": {"spec": {"priorityClassName": "high"}}},
    ],
    ids=["another variable", "another value", "image", "argument", "template"],
)
def test_what_a_person_changes_for_the_workers_is_a_new_attempt(fake_cluster, launch):
    assert digest_of(fake_cluster, {"launch": launch}) != digest_of(fake_cluster, {"launch": {"env": ENV}})
