import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: {namespace}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: {namespace}}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - name: {namespace}
      resources: [{{name: nvidia.com/gpu, nominalQuota: 8}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: team}}
spec: {{clusterQueue: {namespace}}}
"""

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, labels: {{kueue.x-k8s.io/queue-name: team}}}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      containers:
      - name: trainer
        image: ghcr.io/acme/train:1.4
        command: [sleep, "600"]
        resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""


@pytest.fixture(scope="module")
def kueue(cluster):
    cluster.control("kueue-up")
    yield
    cluster.control("kueue-down")


@pytest.fixture
def queue(kueue, cluster, namespace):
    cluster.apply(QUEUES.format(namespace=namespace), namespace)
    yield "team"
    cluster.kubectl("delete", "jobs", "--all", "--namespace", namespace)
    cluster.kubectl("delete", "localqueue", "team", "--namespace", namespace)
    cluster.kubectl("delete", f"clusterqueue/{namespace}", f"resourceflavor/{namespace}")


def _active(cluster, job, namespace):
    return cluster.get("job", job, namespace=namespace)["status"].get("active", 0)


def test_a_job_waits_suspended_until_the_quota_is_free(cluster, namespace, queue):
    cluster.apply(JOB.format(name="first"), namespace)
    cluster.wait("the first Job's pod", lambda: _active(cluster, "first", namespace) == 1)
    cluster.apply(JOB.format(name="second"), namespace)
    cluster.wait(
        "the second Job's Workload",
        lambda: len(cluster.get("workloads.kueue.x-k8s.io", namespace=namespace)["items"]) == 2,
    )
    assert cluster.get("job", "second", namespace=namespace)["spec"]["suspend"]
    cluster.kubectl("delete", "job", "first", "--namespace", namespace)
    cluster.wait("the second Job's pod", lambda: _active(cluster, "second", namespace) == 1)
