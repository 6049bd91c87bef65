"""The client's requests, and its reading of responses, with a stand-in for the API server."""

import asyncio
import base64
import json

import pytest

from rightsizer_operator.cluster.client import ApiError, KubeClient, NameTakenError
from rightsizer_operator.runtime.plan_metrics import Metrics

JOBS, SECRETS = "/apis/batch/v1/namespaces/team/jobs", "/api/v1/namespaces/team/secrets"
SERVICES, PODS = "/api/v1/namespaces/team/services", "/api/v1/namespaces/team/pods"
PLANS = "/apis/rightsizer.dev/v1alpha1/namespaces/team/trainingplans"


@pytest.fixture
def kube(fake_api):
    return KubeClient(fake_api, Metrics())


def child(kind="Service", name="demo", owner="plan-1", **labels):
    metadata = {"name": name, "namespace": "team", "labels": labels, "ownerReferences": [{"uid": owner}]}
    return {"kind": kind, "metadata": metadata}


def refused(awaitable, kind=ApiError):
    with pytest.raises(kind) as caught:
        asyncio.run(awaitable)
    return caught.value


def test_a_list_comes_in_pieces_without_managed_fields(fake_api, kube):
    for name in "abcde":
        fake_api.put(f"{JOBS}/{name}", {"metadata": {"managedFields": [1], "labels": {"k": "v"}}})

    async def names():
        return [job["metadata"] async for job in kube.every(JOBS, labelSelector="k=v")]

    found = asyncio.run(names())
    assert [job["name"] for job in found] == list("abcde")
    assert not any("managedFields" in job for job in found)
    assert [query["limit"] for _, _, query in fake_api.requests] == [100] * 3
    assert asyncio.run(kube.list("Job", "team", "k=other")) == []


@pytest.mark.parametrize(
    ("answer", "status", "message", "after"),
    [
        ((429, b'{"message": "later"}', {"Retry-After": "3"}), 429, "later", 3.0),
        ((500, b"a proxy's page", {"Retry-After": "soon"}), 500, "a proxy's page", None),
        ((403, b"[]", None), 403, "[]", None),
        (OSError("no route"), 0, "no route", None),
        (TimeoutError("slow"), 0, "slow", None),
    ],
    ids=["told to wait", "not JSON", "no object", "unreachable", "too slow"],
)
def test_refusals_become_errors_and_are_counted(fake_api, answer, status, message, after):
    metrics = Metrics()
    fake_api.refuse["GET", "/jobs"] = [answer]
    error = refused(KubeClient(fake_api, metrics).call("GET", JOBS))
    assert (error.status, error.retry_after_s) == (status, after)
    assert message in error.message
    assert f'api_errors_total{{code="{status}"}} 1.0' in metrics.render().decode()


def test_a_process_that_may_have_lost_its_lease_writes_nothing(fake_api, kube):
    kube.may_write = lambda: False
    assert refused(kube.delete("Job", "team", "demo")).status == 0
    assert fake_api.requests == []
    asyncio.run(kube.call("GET", JOBS))
    asyncio.run(kube.call("POST", JOBS, body=child("Job"), fenced=False))
    assert [method for method, _, _ in fake_api.requests] == ["GET", "POST"]


def test_a_dry_run_sets_the_flag_on_every_write(fake_api):
    asyncio.run(KubeClient(fake_api, Metrics(), dry_run=True).apply(child()))
    assert fake_api.requests == [("POST", SERVICES, {"fieldManager": "rightsizer", "dryRun": "All"})]
    assert fake_api.objects == {}


def test_a_child_is_created_and_an_existing_one_is_corrected(fake_api, kube):
    asyncio.run(kube.apply(child(k="old")))
    made = asyncio.run(kube.apply(child(k="new")))
    assert made["metadata"]["labels"] == {"k": "new"}
    assert fake_api.requests[-1][0] == "PATCH"
    assert fake_api.requests[-1][2]["force"] == "true"


@pytest.mark.parametrize(
    ("there", "error", "text"),
    [
        (child(owner="somebody"), NameTakenError, "is not owned by this plan"),
        (
            child() | {"metadata": child()["metadata"] | {"deletionTimestamp": "now"}},
            ApiError,
            "still terminating",
        ),
    ],
    ids=["somebody else's", "being deleted"],
)
def test_an_object_that_is_not_ours_is_never_touched(fake_api, kube, there, error, text):
    fake_api.put(f"{SERVICES}/demo", there)
    assert text in refused(kube.apply(child()), error).message
    assert [method for method, _, _ in fake_api.requests] == ["POST", "GET"]


def test_refusals_of_a_create_are_reported_verbatim(fake_api, kube):
    fake_api.refuse["POST", "/services"] = [(422, b'{"message": "invalid"}'), (409, b'{"message": "races"}')]
    assert refused(kube.apply(child())).status == 422
    assert refused(kube.apply(child())).message == "races"  # it was gone again when looked for


def test_a_job_that_is_there_gets_no_more_than_its_labels_back(fake_api, kube):
    asyncio.run(kube.apply(child("Job", k="v")))
    fake_api.objects[f"{JOBS}/demo"]["metadata"]["labels"] = {}
    assert asyncio.run(kube.apply(child("Job", k="v")))["metadata"]["labels"] == {"k": "v"}
    asyncio.run(kube.apply(child("Job", k="v")))
    assert [method for method, _, _ in fake_api.requests].count("PATCH") == 1


def test_a_claim_template_goes_to_the_version_that_it_states(fake_api, kube):
    asyncio.run(kube.apply(child("ResourceClaimTemplate") | {"apiVersion": "resource.k8s.io/v1beta2"}))
    assert "/apis/resource.k8s.io/v1beta2/namespaces/team/resourceclaimtemplates/demo" in fake_api.objects


def test_a_key_is_32_random_bytes_and_stays_when_it_is_there(fake_api, kube):
    asyncio.run(kube.apply(child("Secret")))
    data = fake_api.objects[f"{SECRETS}/demo"]["data"]
    (key,) = data.values()
    assert len(base64.b64decode(key)) == 32
    asyncio.run(kube.apply(child("Secret")))
    assert fake_api.objects[f"{SECRETS}/demo"]["data"] == data
    fake_api.refuse["POST", "/secrets"] = [(403, b'{"message": "no"}')]
    assert refused(kube.apply(child("Secret"))).status == 403


def test_a_job_s_spec_and_notes_are_patched(fake_api, kube):
    fake_api.put(f"{JOBS}/demo", child("Job") | {"spec": {"parallelism": 2, "suspend": False}})
    made = asyncio.run(kube.patch_job("Job", "team", "demo", {"parallelism": 4}, {"why": "late"}))
    assert made["spec"] == {"parallelism": 4, "suspend": False}
    assert made["metadata"]["annotations"] == {"why": "late"}


def test_a_status_is_patched_unless_the_plan_changed_meanwhile(fake_api, kube):
    version = fake_api.put(f"{PLANS}/demo", {"metadata": {}})["metadata"]["resourceVersion"]
    made = asyncio.run(kube.patch_status("team", "demo", version, {"attempt": 1}))
    assert made["status"] == {"attempt": 1}
    assert refused(kube.patch_status("team", "demo", version, {"attempt": 2})).status == 409


def test_a_dead_node_s_pod_fails_by_no_fault_of_its_own(fake_api, kube):
    fake_api.put(f"{PODS}/w0", {"metadata": {}})
    asyncio.run(kube.fail_pod("team", "w0", "uid-1"))
    status = fake_api.objects[f"{PODS}/w0"]["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "DeadNode")
    assert status["conditions"][0]["type"] == "DisruptionTarget"
    asyncio.run(kube.fail_pod("team", "gone", "uid-1"))
    fake_api.refuse["PATCH", "/status"] = [(409, b"{}")]
    assert refused(kube.fail_pod("team", "w0", "uid-2")).status == 409


def test_deleting_a_missing_object_is_no_error(fake_api, kube):
    fake_api.put(f"{JOBS}/demo", child("Job"))
    asyncio.run(kube.delete("Job", "team", "demo", uid="uid-1", force=True))
    asyncio.run(kube.delete("Job", "team", "demo"))
    assert fake_api.objects == {}
    fake_api.refuse["DELETE", "/demo"] = [(403, b"{}")]
    assert refused(kube.delete("Job", "team", "demo")).status == 403


def test_workloads_and_events_go_where_they_belong(fake_api, kube):
    path = "/apis/kueue.x-k8s.io/v1beta1/namespaces/team/workloads/w"
    fake_api.put(path, {"metadata": {}})
    asyncio.run(kube.patch_workload("v1beta1", "team", "w", active=False))
    assert json.dumps(fake_api.objects[path]["spec"]) == '{"active": false}'
    asyncio.run(kube.create_event({"metadata": {"namespace": "team", "name": "e"}}))
    assert "/api/v1/namespaces/team/events/e" in fake_api.objects
