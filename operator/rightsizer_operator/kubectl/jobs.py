"""Jobs that others launched in a cluster, as they run: GPUs, their type, a plan in an annotation."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rightsizer_api.quantities import parse_time
from rightsizer_engine.errors import InputError
from rightsizer_launch.running.existing_job import ExistingJob
from rightsizer_operator.kubectl.client import Client, ClusterError
from rightsizer_operator.values.nodes import ClusterNode, gpu_type, pod_gpus
from rightsizer_operator.values.pods import PodPhase

Object = Mapping[str, Any]

ANNOTATION = "rightsizer.dev/comment"
"""Annotation of a job with its plan, written as a Slurm comment is."""
KINDS: Mapping[str, tuple[str, str]] = {
    "job": ("jobs.batch", "batch.kubernetes.io/job-name"),
    "jobset": ("jobsets.jobset.x-k8s.io", "jobset.sigs.k8s.io/jobset-name"),
    "trainjob": ("trainjobs.trainer.kubeflow.org", "jobset.sigs.k8s.io/jobset-name"),
    "pytorchjob": ("pytorchjobs.kubeflow.org", "training.kubeflow.org/job-name"),
    "rayjob": ("rayjobs.ray.io", "ray.io/cluster"),
}
"""Kind -> resource, and the label of its pods whose value is its name (a RayJob's: its cluster's)."""

_NAMED = re.compile(r"(?P<kind>[A-Za-z]{3,12})/(?P<name>[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)")


def kubernetes_job(client: Client, text: str) -> ExistingJob:
    """The job KIND/NAME of the client's namespace, counted by its running pods."""
    named = _NAMED.fullmatch(text)
    if named is None or named["kind"].lower() not in KINDS:
        raise InputError("--kubernetes", value=text, remedy=f"write KIND/NAME; kinds: {', '.join(KINDS)}")
    resource, label = KINDS[named["kind"].lower()]
    try:
        job = client.get(resource, named["name"])
        owner = _cluster_of(job) or named["name"] if label == "ray.io/cluster" else named["name"]
        pods = client.get("pods", f"--selector={label}={owner}")["items"]
        nodes = {raw["metadata"]["name"]: ClusterNode.of(raw) for raw in client.get("nodes")["items"]}
    except ClusterError as error:
        raise InputError("--kubernetes", value=text, remedy=str(error)) from None
    return _counted(text, job, pods, nodes)


def _counted(text: str, job: Object, pods: list[Object], nodes: Mapping[str, ClusterNode]) -> ExistingJob:
    running = [pod for pod in pods if pod.get("status", {}).get("phase") == PodPhase.RUNNING]
    held: Counter[str] = Counter()
    for pod in running:
        held[pod["spec"].get("nodeName", "")] += pod_gpus(pod["spec"])
    held = +held
    if not held:
        raise InputError(
            "--kubernetes", value=text, remedy=f"has no running pod with GPUs ({len(pods)} pods)"
        )
    types = {gpu_type(nodes[name].product) if name in nodes else "" for name in held}
    times = [parse_time(pod["status"].get("startTime")) for pod in running]
    started = max((time for time in times if time is not None), default=dt.datetime.now(dt.UTC))
    return ExistingJob(
        name=text,
        gpus=held.total(),
        gpu=types.pop() if len(types) == 1 else "",
        gpus_per_node=max(held.values()),
        started_s=started.timestamp(),
        plan=str((job["metadata"].get("annotations") or {}).get(ANNOTATION, "")),
    )


def _cluster_of(job: Object) -> str:
    return str(job.get("status", {}).get("rayClusterName", ""))
