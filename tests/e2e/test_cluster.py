import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.nightly]

WEB = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: web
    image: ghcr.io/acme/train:1.4
    command: [python, -m, http.server, "8080"]
"""

CLIENT = """
apiVersion: v1
kind: Pod
metadata: {{name: client-{node}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  restartPolicy: OnFailure
  containers:
  - name: client
    image: ghcr.io/acme/train:1.4
    command: [python, -c, "import urllib.request as u; print(u.urlopen('http://web').status)"]
"""

GPU_POD = """
apiVersion: v1
kind: Pod
metadata: {name: gpus}
spec:
  restartPolicy: Never
  containers:
  - name: gpus
    image: ghcr.io/acme/train:1.4
    command: [sh, -c, "echo $NVIDIA_VISIBLE_DEVICES"]
    resources: {limits: {nvidia.com/gpu: 2}}
"""

STRICT_POD = """
apiVersion: v1
kind: Pod
metadata: {name: strict}
spec:
  restartPolicy: Never
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: strict
    image: ghcr.io/rightsizer/rightsizer:0.0.0.dev0
    args: [--version]
    securityContext:
      readOnlyRootFilesystem: true
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
"""


def _succeeded(cluster, pod, namespace):
    return cluster.api.get("pod", pod, namespace=namespace)["status"]["phase"] == "Succeeded"


def test_three_ready_nodes_offer_eight_gpus_each(cluster):
    gpus = {
        node["metadata"]["name"]: node["status"]["allocatable"]["nvidia.com/gpu"]
        for node in cluster.api.get("nodes")["items"]
    }
    assert gpus == {"n1": "8", "n2": "8", "n3": "8"}
    assert cluster.ready_nodes() == gpus.keys()


def test_nodes_carry_the_labels_of_gpu_feature_discovery(cluster):
    labels = cluster.api.get("node", "n1")["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert (labels["nvidia.com/gpu.count"], labels["nvidia.com/gpu.memory"]) == ("8", "81559")


def test_a_pod_on_each_node_reaches_a_service_by_name(cluster, namespace):
    cluster.apply(WEB, namespace)
    nodes = ("n1", "n2", "n3")
    for node in nodes:
        cluster.apply(CLIENT.format(node=node), namespace)
    for node in nodes:
        cluster.wait(f"client on {node}", lambda: _succeeded(cluster, f"client-{node}", namespace))  # noqa: B023
        assert "200" in cluster.logs(f"client-{node}", namespace)


def test_a_container_sees_the_gpus_that_it_was_given(cluster, namespace):
    cluster.apply(GPU_POD, namespace)
    cluster.wait("the pod's end", lambda: _succeeded(cluster, "gpus", namespace))
    given = cluster.logs("gpus", namespace).strip().split(",")
    assert len(set(given)) == 2
    assert all(gpu in "01234567" for gpu in given)


def test_a_non_root_pod_with_a_read_only_root_runs_rightsizer(cluster, namespace):
    cluster.apply(STRICT_POD, namespace)
    cluster.wait("the pod's end", lambda: _succeeded(cluster, "strict", namespace))
    assert "rightsizer " in cluster.logs("strict", namespace)


def test_a_broken_gpu_is_not_allocatable_until_it_heals(cluster):
    def allocatable():
        return cluster.api.get("node", "n1")["status"]["allocatable"]["nvidia.com/gpu"]

    cluster.control("gpus-broken", "1", "0,3")
    cluster.wait("two GPUs fewer", lambda: allocatable() == "6")
    cluster.control("gpus-broken", "1", "-")
    cluster.wait("all GPUs again", lambda: allocatable() == "8")


def test_a_killed_api_server_comes_back_where_it_was(cluster):
    cluster.control("kill", "apiserver")
    with pytest.raises(RuntimeError):
        cluster.kubectl("get", "nodes")
    cluster.control("start", "apiserver")
    cluster.wait("the API server", lambda: cluster.ready_nodes() == {"n1", "n2", "n3"})


def test_a_node_that_is_cut_off_turns_not_ready_and_comes_back(cluster):
    cluster.control("node-cut", "3")
    try:
        cluster.wait("the silence to be noticed", lambda: cluster.ready_nodes() == {"n1", "n2"}, within_s=90)
    finally:
        cluster.control("node-join", "3")
    cluster.wait("node 3 again", lambda: "n3" in cluster.ready_nodes())
