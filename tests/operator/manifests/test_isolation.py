import pytest

from rightsizer_operator.values.actions import Apply
from rightsizer_operator.values.settings import OperatorSettings

PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}


def launched(fake_cluster, kind, **settings):
    """The objects of one kind that a launch creates, by role."""
    cluster = fake_cluster()
    cluster.settings = OperatorSettings(**settings)
    children = [action.child for action in cluster.decide() if isinstance(action, Apply)]
    return {c["metadata"]["labels"]["rightsizer.dev/role"]: c for c in children if c["kind"] == kind}


def test_the_store_is_open_to_the_plan_s_workers_only(fake_cluster):
    (rule,) = launched(fake_cluster, "NetworkPolicy")["rendezvous"]["spec"]["ingress"]
    assert rule["ports"] == [{"port": 29400, "protocol": "TCP"}]
    (peer,) = rule["from"]
    assert peer == {
        "podSelector": {"matchLabels": {"rightsizer.dev/plan": "demo", "rightsizer.dev/role": "worker"}}
    }


@pytest.mark.parametrize("peers", [(), (PEER,)], ids=["unknown", "Prometheus"])
def test_metrics_are_open_to_their_readers(fake_cluster, peers):
    _, metrics = launched(fake_cluster, "NetworkPolicy", metrics_from=peers)["worker"]["spec"]["ingress"]
    assert metrics["ports"] == [{"port": 29401, "protocol": "TCP"}]
    assert metrics.get("from", []) == list(peers)


def test_an_administrator_can_do_without_policies(fake_cluster):
    assert launched(fake_cluster, "NetworkPolicy", network_policy=False) == {}


def test_only_the_workers_mount_the_attempt_s_key(fake_cluster):
    name = launched(fake_cluster, "Secret")["rendezvous"]["metadata"]["name"]
    pods = {kind: launched(fake_cluster, kind) for kind in ("Job", "ReplicaSet")}
    worker = pods["Job"]["worker"]["spec"]["template"]["spec"]
    assert {"name": "rightsizer-key", "secret": {"secretName": name}} in worker["volumes"]
    assert name not in str(pods["ReplicaSet"])


def test_the_secret_s_name_differs_between_plans_that_had_the_same_name(fake_cluster):
    first, second = fake_cluster(), fake_cluster()
    second.plan["metadata"]["uid"] = "12345678-2"
    named = [
        action.child["metadata"]["name"]
        for cluster in (first, second)
        for action in cluster.decide()
        if isinstance(action, Apply) and action.child["kind"] == "Secret"
    ]
    assert named == ["demo-a1-uid-1", "demo-a1-12345678"]


def test_workers_get_no_service_account_token_unless_the_template_requests_one(fake_cluster):
    asks = {"launch": {"podTemplate": {"spec": {"automountServiceAccountToken": True}}}}
    jobs = [cluster.settle().job() for cluster in (fake_cluster(), fake_cluster(asks))]
    tokens = [job["spec"]["template"]["spec"]["automountServiceAccountToken"] for job in jobs]
    assert tokens == [False, True]
