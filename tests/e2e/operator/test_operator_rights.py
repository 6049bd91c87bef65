"""A tenant's rights through a plan: nothing that it could not do without one, and nothing elsewhere."""

import json

import pytest
from planrun import IDLE

pytestmark = pytest.mark.kubernetes

TENANT = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: author}}
rules:
- {{apiGroups: [rightsizer.dev], resources: [trainingplans], verbs: [get, list, create, update, patch]}}
{more}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: author}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: author}}
subjects: [{{kind: ServiceAccount, name: default}}]
"""
RULES = {
    "jobs": "- {apiGroups: [batch], resources: [jobs], verbs: [create]}",
    "replicasets": "- {apiGroups: [apps], resources: [replicasets], verbs: [create]}",
    "core": '- {apiGroups: [""], resources: [pods, services, configmaps], verbs: [create]}',
}


@pytest.fixture
def tenant(cluster, operator, namespace):
    """tenant(*rules): create(run), by an account that may write plans and do what the rules say."""

    def grant(*rules):
        cluster.apply(TENANT.format(more="\n".join(RULES[rule] for rule in rules)), namespace)

        def create(run, where=namespace):
            user = f"--as=system:serviceaccount:{namespace}:default"
            text = json.dumps(run.document)
            return cluster.kubectl("create", "--namespace", where, user, "--filename", "-", text=text)

        return create

    return grant


@pytest.mark.parametrize("missing", RULES)
def test_a_plan_creates_nothing_that_its_author_may_not_create(tenant, plan, missing):
    create = tenant(*(RULES.keys() - {missing}))
    with pytest.raises(RuntimeError, match="which you may not create"):
        create(plan())


def test_a_user_with_rights_to_all_children_may_create_plans_in_that_namespace_only(cluster, tenant, plan):
    create, run = tenant(*RULES), plan(launch=IDLE)
    create(run)
    with pytest.raises(RuntimeError, match=r"cannot create resource"):
        create(run, where="default")


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_a_plan_s_carrier_is_created_only_for_those_who_may(tenant, plan, kind):
    create = tenant(*RULES)
    with pytest.raises(RuntimeError, match=f"spec.launch.as {kind} becomes one, which you may not create"):
        create(plan(launch={"as": kind}))


def test_a_template_that_names_another_namespace_stays_at_home(cluster, tenant, plan):
    create, run = tenant(*RULES), plan(launch=IDLE | {"podTemplate": {"metadata": {"namespace": "default"}}})
    create(run)
    cluster.wait("a Job at home", lambda: run.jobs)
    assert not cluster.api.get("jobs", selector="app.kubernetes.io/managed-by=rightsizer")["items"]


def test_a_privileged_pod_is_held_to_the_namespace_s_standard(cluster, tenant, plan, namespace):
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    container = {"name": "trainer", "securityContext": {"privileged": True}}
    template = {"containers": [container], "hostPID": True}
    create, run = tenant(*RULES), plan(launch=IDLE | {"podTemplate": {"spec": template}})
    create(run)
    cluster.wait("a refusal", lambda: "violates PodSecurity" in run.kubectl("get", "events"))
    assert not run.pods()


def test_plans_of_one_name_in_two_namespaces_do_not_meet(cluster, plan, namespace, neighbour):
    here, there = plan(launch=IDLE), plan(namespace=neighbour, launch=IDLE)
    for run in (here, there):
        run.start()
        cluster.wait("a Job", lambda run=run: run.jobs)
    here.kubectl("delete", "tp", here.name)
    cluster.wait("its own Job is gone", lambda: not here.jobs)
    assert there.jobs == ["small-gpt-a1"]
    job = cluster.api.get("job", "small-gpt-a1", namespace=neighbour)
    assert "deletionTimestamp" not in job["metadata"]
    there.kubectl("delete", "tp", there.name)


def test_foreign_objects_of_the_children_s_names_and_labels_are_left_alone(cluster, start, namespace):
    labels = {"app.kubernetes.io/managed-by": "rightsizer", "rightsizer.dev/plan": "small-gpt"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "small-gpt-rdzv", "labels": labels},
        "spec": {"ports": [{"port": 1}]},
    }
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "ghcr.io/acme/train:1.4"}]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "small-gpt-a0", "labels": labels | {"rightsizer.dev/attempt": "0"}},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }
    for each in (service, job):
        cluster.apply(json.dumps(each), namespace)
    run = start(launch=IDLE)
    cluster.wait("a size", lambda: run.condition("Sized")["status"] == "True", within_s=30)
    cluster.wait("a refusal", lambda: "is not owned by this plan" in run.kubectl("describe", "tp", run.name))
    found = cluster.api.get("service", "small-gpt-rdzv", namespace=namespace)
    assert found["spec"]["ports"][0]["port"] == 1
    assert "ownerReferences" not in found["metadata"]
    assert run.jobs == ["small-gpt-a0"]


def test_a_job_that_loses_its_labels_gets_them_back_and_stays_the_plan_s(cluster, tenant, plan):
    create, run = tenant(*RULES), plan(launch=IDLE)
    create(run)
    cluster.wait("a Job", lambda: run.jobs)
    name = f"{run.name}-a1"
    job = cluster.api.get("job", name, namespace=run.namespace)
    for gone in (["rightsizer.dev/attempt", "rightsizer.dev/plan"], ["app.kubernetes.io/managed-by"]):
        run.kubectl("label", "job", name, *(f"{label}-" for label in gone))

    def current_metadata():
        return cluster.api.get("job", name, namespace=run.namespace)["metadata"]

    cluster.wait("its labels are back", lambda: current_metadata()["labels"] == job["metadata"]["labels"])
    assert current_metadata()["uid"] == job["metadata"]["uid"]
    run.kubectl("scale", "tp", run.name, "--replicas=1")  # the operator still sees the Job, and changes it
    cluster.wait(
        "one worker",
        lambda: cluster.api.get("job", name, namespace=run.namespace)["spec"]["parallelism"] == 1,
    )
    assert run.jobs == [name]


READ, WRITE = {"get", "list", "watch"}, {"create", "update", "patch", "delete", "deletecollection"}
ROLES = {"view": READ, "edit": READ | WRITE, "admin": READ | WRITE}


def allowed(cluster, namespace, verbs=READ | WRITE, subresource=""):
    """The verbs on plans, or on a subresource of them, that the namespace's default account has."""
    account = f"--as=system:serviceaccount:{namespace}:default"
    user = (account, f"--namespace={namespace}", f"--subresource={subresource}", "--quiet")

    def can(verb):
        try:
            cluster.kubectl("auth", "can-i", verb, "trainingplans.rightsizer.dev", *user)
        except RuntimeError:  # kubectl answers by its exit code
            return False
        return True

    return {verb for verb in verbs if can(verb)}


@pytest.mark.parametrize("role", ROLES)
def test_view_edit_and_admin_hold_for_plans_too(cluster, operator, namespace, role):
    account = f"--serviceaccount={namespace}:default"
    cluster.kubectl("create", "rolebinding", role, f"--clusterrole={role}", account, "-n", namespace)
    cluster.wait(f"the rights of {role}", lambda: allowed(cluster, namespace) == ROLES[role])
    writes = {"update", "patch"}
    assert allowed(cluster, namespace, writes, "scale") == (set() if role == "view" else writes)
    assert not allowed(cluster, namespace, writes, "status")
    assert not allowed(cluster, namespace, writes, "finalizers")


def test_blocking_a_plan_s_deletion_needs_a_right(cluster, start, namespace):
    """OwnerReferencesPermissionEnforcement is on, so the operator needs the right for each child."""
    run = start(suspend=True)
    uid = cluster.api.get("tp", run.name, namespace=namespace)["metadata"]["uid"]
    owner = {"apiVersion": "rightsizer.dev/v1alpha1", "kind": "TrainingPlan", "name": run.name, "uid": uid}
    metadata = {"name": "child", "ownerReferences": [owner | {"blockOwnerDeletion": True}]}
    child = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    account, user = f"{namespace}:default", f"--as=system:serviceaccount:{namespace}:default"
    binding = ("create", "rolebinding", "edit", "--clusterrole=edit", f"--serviceaccount={account}")
    cluster.kubectl(*binding, f"--namespace={namespace}")
    with pytest.raises(RuntimeError, match="cannot set blockOwnerDeletion"):
        cluster.kubectl("create", user, f"--namespace={namespace}", "--filename=-", text=child)
