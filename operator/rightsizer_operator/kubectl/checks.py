"""Checks of a Kubernetes cluster through the user's kubectl. They read only."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rightsizer_api.plan import VERSION
from rightsizer_api.schema.crd import crd
from rightsizer_engine.errors import InputError
from rightsizer_launch.findings import Finding, missing, note, ok
from rightsizer_operator.kubectl.client import Client, ClusterError
from rightsizer_operator.values.carriers import KINDS
from rightsizer_operator.values.devices import GROUP as DEVICES_GROUP
from rightsizer_operator.values.devices import DeviceClass, Devices
from rightsizer_operator.values.names import LABEL_PLAN
from rightsizer_operator.values.nodes import ClusterNode, gpu_type
from rightsizer_telemetry.client import FailedQuery, PrometheusSettings
from rightsizer_telemetry.discovery import discovered
from rightsizer_telemetry.sources import DCGM

Object = Mapping[str, Any]

_POLICY_ENGINES = (
    "calico",
    "cilium",
    "antrea",
    "kube-router",
    "weave-net",
    "canal",
    "ovn",
    "azure-npm",
    "anetd",
)
"""Network plugins that enforce NetworkPolicies, as their pods are named."""
_POLICY_DISTRIBUTIONS = ("+k3s", "+rke2")
"""Kubelet versions of distributions that enforce them without a pod of their own."""
_SHARED_STORAGE = (
    "nfs", "cephfs", "efs.csi", "filestore", "file.csi.azure", "lustre", "fsx", "weka", "beegfs", "gpfs",
    "spectrumscale", "glusterfs", "juicefs", "longhorn", "portworx", "vast", "quobyte", "manila",
)  # fmt: skip
"""Provisioners whose volumes many nodes may mount for writing, by a part of their names."""
_UNUSABLE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_LABELLED = "app.kubernetes.io/name=rightsizer"


def findings(
    client: Client,
    *,
    say: Callable[[str], None],
    series: Callable[[str, Callable[[str], None]], int | str] | None = None,
) -> Iterator[Finding]:
    """Every check of the cluster of `client`. If the API server does not answer, that is the only finding.

    `say` gets the Prometheus that was found. `series` counts its GPU series, or says why it cannot.
    """
    try:
        client.get("namespaces")
    except ClusterError as error:
        yield missing("API server", str(error), "choose a context of your kubeconfig: --context NAME")
        return
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        lambda: _definition(client),
        lambda: _operator(client),
        lambda: _nodes(client),
        lambda: _claimed(client),
        lambda: _policies(client),
        lambda: _storage(client),
        lambda: _kueue(client),
        lambda: _carriers(client),
        lambda: _images(client),
        lambda: _pod_security(client),
        lambda: _prometheus((series or _gpu_series)(client.where.context, say)),
    )
    for check in checks:
        try:
            yield from check()
        except ClusterError as error:
            yield note("not checked", str(error), "ask for the right to list it")


def _definition(client: Client) -> Iterator[Finding]:
    name = crd()["metadata"]["name"]
    try:
        found = client.get("crd", name)
    except ClusterError:
        yield missing("TrainingPlans", "not defined", "rightsizer crd | kubectl apply --server-side -f -")
        return
    ours = {v["name"]: v["schema"] for v in crd()["spec"]["versions"]}[VERSION]["openAPIV3Schema"][
        "properties"
    ]
    theirs = [v for v in found["spec"]["versions"] if v["name"] == VERSION and v.get("served")]
    known = theirs[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] if theirs else {}
    new = sorted(set(ours["spec"]["properties"]) - set(known))
    if new:
        remedy = "rightsizer crd | kubectl apply --server-side -f -"
        yield missing("TrainingPlans", f"defined by an older version, without {', '.join(new)}", remedy)
    else:
        yield ok("TrainingPlans", f"{name} {VERSION}")


def _operator(client: Client) -> Iterator[Finding]:
    found = client.get("deployments", "--all-namespaces", f"--selector={_LABELLED}")["items"]
    if not found:
        yield missing("operator", "not installed", "helm install rightsizer helm/rightsizer")
    for each in found:
        name = f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        ready, wanted = each.get("status", {}).get("readyReplicas", 0), each["spec"].get("replicas", 1)
        if ready:
            yield ok("operator", f"{name}: {ready} of {wanted} ready")
        else:
            why = _why_not_ready(client, each["metadata"]["namespace"])
            remedy = f"kubectl -n {each['metadata']['namespace']} describe pods -l {_LABELLED}"
            yield missing("operator", f"{name}: 0 of {wanted} ready{why}", remedy)


def _why_not_ready(client: Client, namespace: str) -> str:
    """The reason that its containers wait for, and the image if it cannot be pulled."""
    pods = client.get("pods", f"--namespace={namespace}", f"--selector={_LABELLED}")["items"]
    for reason, image in (found for pod in pods for found in _waiting(pod)):
        return f" ({reason}: {image})" if reason in _UNUSABLE else f" ({reason})"
    return ""


def _waiting(pod: Object) -> Iterator[tuple[str, str]]:
    """(reason, image) of each container of a pod that does not start."""
    status = pod.get("status", {})
    for state in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        reason = state.get("state", {}).get("waiting", {}).get("reason", "")
        if reason:
            yield reason, state.get("image", "")


def _images(client: Client) -> Iterator[Finding]:
    """The images that pods of plans cannot pull; nothing without such a pod: doctor starts none."""
    pods = client.get("pods", "--all-namespaces", f"--selector={LABEL_PLAN}")["items"]
    refused = {
        (pod["metadata"]["labels"][LABEL_PLAN], image): reason
        for pod in pods
        if LABEL_PLAN in pod["metadata"].get("labels", {})
        for reason, image in _waiting(pod)
        if reason in _UNUSABLE
    }
    for (plan, image), reason in sorted(refused.items()):
        remedy = "correct spec.launch.image, or its pull secret in spec.launch.podTemplate"
        yield missing("images", f"plan {plan}: {reason}: {image}", remedy)


def _nodes(client: Client) -> Iterator[Finding]:
    nodes = [ClusterNode.of(raw) for raw in client.get("nodes")["items"]]
    with_gpus = [node for node in nodes if node.gpus]
    if not with_gpus and any(_claimed(client)):
        return
    if not with_gpus:
        yield missing("GPUs", f"none allocatable on {len(nodes)} nodes", "install the vendor's device plugin")
        return
    unnamed = [node.name for node in with_gpus if not node.product]
    if unnamed:
        remedy = "install GPU feature discovery (the GPU operator has it), or label them"
        yield missing("GPU labels", f"{_some(unnamed)} have GPUs without a product label", remedy)
    unknown = sorted({node.product for node in with_gpus if node.product and not gpu_type(node.product)})
    if unknown:
        yield missing(
            "GPU types", f"{_some(unknown)} not in the catalog", "see rightsizer gpus; report the name"
        )
    away = [node.name for node in with_gpus if not node.ready or node.cordoned]
    if away:
        yield note("GPU nodes", f"{_some(away)} not ready or cordoned", "their GPUs are not counted")
    for kind in sorted({gpu_type(node.product) for node in with_gpus if gpu_type(node.product)}):
        mine = [node for node in with_gpus if gpu_type(node.product) == kind]
        yield ok("GPUs", f"{sum(node.gpus for node in mine)} {kind} on {len(mine)} nodes")


def _claimed(client: Client) -> Iterator[Finding]:
    """The GPUs that pods can claim, by DeviceClass; nothing in clusters without devices of the API."""
    try:
        classes = client.get(f"deviceclasses.{DEVICES_GROUP}")["items"]
        slices = client.get(f"resourceslices.{DEVICES_GROUP}")["items"]
    except ClusterError:
        return
    for stated in map(DeviceClass.of, classes):
        counts: Counter[str] = Counter()
        for product, gpus in Devices.of(stated, slices, (), api="").nodes.values():
            counts[gpu_type(product)] += gpus
        listed = ", ".join(f"{gpus} {kind}" for kind, gpus in sorted(counts.items()) if kind)
        if listed:
            yield ok("GPU claims", f"{listed}; the chart's gpus.deviceClass: {stated.name} uses them")


def _policies(client: Client) -> Iterator[Finding]:
    pods = client.get("pods", "--namespace=kube-system")["items"]
    names = " ".join(pod["metadata"]["name"] for pod in pods)
    engine = next((engine for engine in _POLICY_ENGINES if engine in names), "")
    versions = [
        n["status"].get("nodeInfo", {}).get("kubeletVersion", "") for n in client.get("nodes")["items"]
    ]
    if engine or any(sign in version for version in versions for sign in _POLICY_DISTRIBUTIONS):
        yield ok("network policies", f"enforced by {engine or 'the distribution'}")
    else:
        remedy = "without one, pods of other namespaces reach a plan's workers"
        yield note("network policies", "no plugin that enforces them is known here", remedy)


def _storage(client: Client) -> Iterator[Finding]:
    classes = [(c["metadata"]["name"], c["provisioner"]) for c in client.get("storageclasses")["items"]]
    shared = [name for name, provisioner in classes if any(sign in provisioner for sign in _SHARED_STORAGE)]
    volumes = client.get("persistentvolumes")["items"]
    many = [v["metadata"]["name"] for v in volumes if "ReadWriteMany" in v["spec"].get("accessModes", ())]
    if shared or many:
        yield ok("shared storage", _some([*shared, *many]))
    else:
        seen = f"storage classes: {_some([name for name, _ in classes])}" if classes else "no storage class"
        remedy = "workers on several nodes need a ReadWriteMany volume or object storage for checkpoints"
        yield note("shared storage", f"none known ({seen})", remedy)


def _kueue(client: Client) -> Iterator[Finding]:
    try:
        queues = client.get("localqueues.kueue.x-k8s.io", "--all-namespaces")["items"]
    except ClusterError:
        yield note("Kueue", "not installed; plans start without a queue")
        return
    names = [f"{queue['metadata']['namespace']}/{queue['metadata']['name']}" for queue in queues]
    if names:
        yield ok("Kueue", f"local queues {_some(names)}")
    else:
        yield note("Kueue", "installed, without a LocalQueue", "create one in each namespace of plans")


def _carriers(client: Client) -> Iterator[Finding]:
    """The kinds besides a Job that may carry a plan."""
    for kind, carrier in KINDS.items():
        if not carrier.resource:
            continue
        try:
            client.get(carrier.resource)
        except ClusterError:
            yield note(f"{kind}s", "not installed", f"spec.launch.as: {kind} needs {carrier.install}")
        else:
            yield ok(f"{kind}s", f"spec.launch.as: {kind} works")


def _pod_security(client: Client) -> Iterator[Finding]:
    name = client.where.namespace or "default"
    labels = client.get("namespace", name)["metadata"].get("labels", {})
    level = labels.get("pod-security.kubernetes.io/enforce", "")
    yield ok("Pod Security", f"namespace {name} enforces {level or 'nothing'}; workers pass restricted")


def _prometheus(series: int | str) -> Iterator[Finding]:
    if isinstance(series, str):
        yield note("Prometheus", series, "the operator and rightsizer report need it: --prometheus URL")
    elif series:
        yield ok("Prometheus", f"{series} GPU series")
    else:
        yield missing("Prometheus", "has no GPU series", "install dcgm-exporter and have it scraped")


def _gpu_series(context: str, say: Callable[[str], None]) -> int | str:
    """Series of DCGM's utilisation in the cluster's Prometheus; as text why they cannot be counted."""
    try:
        with discovered(PrometheusSettings(url=""), context, say=say) as prometheus:
            counted = prometheus.instant(f'count({{__name__=~"{DCGM.names()}"}}) or vector(0)')
    except InputError as error:
        return str(error.remedy)
    if isinstance(counted, FailedQuery):
        return counted.reason
    return int(counted[0].value) if counted else 0


def _some(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
