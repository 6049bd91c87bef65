import json
from pathlib import Path

import pytest

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
JOBS = """
- {apiGroups: [batch], resources: [jobs], verbs: [create]}
- {apiGroups: [""], resources: [pods], verbs: [create]}
"""
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "02-kubernetes" / "plan.yaml"
PLAN = EXAMPLE.read_text().split("---\n")[0]


def _as_tenant(cluster, namespace, *arguments, text):
    user = f"--as=system:serviceaccount:{namespace}:default"
    return cluster.kubectl(*arguments, "--namespace", namespace, user, "--filename", "-", text=text)


def test_a_plan_gives_nobody_jobs_that_they_may_not_create(cluster, operator, namespace):
    cluster.apply(TENANT.format(more=""), namespace)
    with pytest.raises(RuntimeError, match="may not create in this namespace"):
        _as_tenant(cluster, namespace, "create", text=PLAN)


def test_who_may_create_jobs_may_create_plans_in_that_namespace_only(cluster, operator, namespace):
    cluster.apply(TENANT.format(more=JOBS), namespace)
    _as_tenant(cluster, namespace, "create", text=PLAN)
    cluster.kubectl("delete", "tp", "small-gpt", "--namespace", namespace)
    user = f"--as=system:serviceaccount:{namespace}:default"
    with pytest.raises(RuntimeError, match=r"cannot create resource"):
        cluster.kubectl("create", "--namespace", "default", user, "--filename", "-", text=PLAN)


def test_a_foreign_object_of_a_childs_name_is_left_alone(cluster, start, namespace):
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "small-gpt-rdzv"},
        "spec": {"ports": [{"port": 1}]},
    }
    cluster.apply(json.dumps(service), namespace)
    run = start()
    cluster.wait("a size", lambda: run.condition("Sized")["status"] == "True", within_s=30)
    found = cluster.get("service", "small-gpt-rdzv", namespace=namespace)
    assert found["spec"]["ports"][0]["port"] == 1
    assert "ownerReferences" not in found["metadata"]
    assert run.jobs == []
