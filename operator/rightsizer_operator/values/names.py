"""Names, labels and annotations of the operator's objects."""

from rightsizer_api.plan import GROUP

FIELD_MANAGER = "rightsizer"
MANAGED = "rightsizer"
LABEL_MANAGED = "app.kubernetes.io/managed-by"
LABEL_PLAN = f"{GROUP}/plan"
LABEL_ATTEMPT = f"{GROUP}/attempt"
LABEL_ROLE = f"{GROUP}/role"
WORKER, RENDEZVOUS = "worker", "rendezvous"

DIGEST = f"{GROUP}/launch-digest"
"""Annotation of a Job: a hash of its pod template without the parts that an elastic resize changes."""
GPU_TYPE = f"{GROUP}/gpu-type"
"""Annotation of a Job: the engine's GPU type."""
GPUS = f"{GROUP}/gpus-per-pod"
"""Annotation of a Job: the GPUs that a claim gives each pod; without it pods request a resource."""
ELASTIC = f"{GROUP}/elastic"
"""Annotation of a Job: "true" where the number of workers may change in place."""
RESERVE = f"{GROUP}/reserve-gpus"
"""Annotation of a Job: the most GPUs that the plan takes when it grows, for queues and administrators."""
CARRIER = f"{GROUP}/carrier"
"""Annotation of a Job that another object carries: the kind of the object that the operator created."""
PLAN_UID = f"{GROUP}/plan-uid"
"""Annotation of a Job that another object carries: the plan's uid; its owner reference names the carrier."""
NUDGED = f"{GROUP}/nudged"
"""Annotation of a Job: when it was last changed to make Kueue reconcile it."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""A plan's label that submits its Jobs to a Kueue LocalQueue."""
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
"""A plan's label with the WorkloadPriorityClass of its Jobs."""
QUEUE_ELASTIC = "kueue.x-k8s.io/elastic-job"
"""Annotation of a Job: "true" lets Kueue admit its growth while it runs (ElasticJobsViaWorkloadSlices)."""

END_NOW_S = 1
"""A Job's activeDeadlineSeconds that ends it as failed: running pods stop, failed ones keep their logs."""

CONTAINER, STORE = "trainer", "store"
"""The containers of a worker and of the rendezvous pod; a pod template may set fields of both."""
CLAIM = "rightsizer-gpus"
"""A worker's claim of devices, and the request in it."""
DEADLINE_EXCEEDED = "DeadlineExceeded"  # why a Job failed, in Kubernetes' words
KEY = "key"
"""The entry of a rendezvous key in its Secret."""
METRICS_PORT = 29401
"""Rank 0's Prometheus text; one above the rendezvous port."""


def job_name(plan: str, attempt: int) -> str:
    """The Job of an attempt."""
    return f"{plan}-a{attempt}"


def key_name(plan: str, attempt: int, owner_uid: str) -> str:
    """The Secret of an attempt's rendezvous key. The uid keeps apart plans that had the same name in turn."""
    return f"{job_name(plan, attempt)}-{owner_uid[:8]}"


def rendezvous_name(plan: str) -> str:
    """The rendezvous store's ReplicaSet and Service; one for all attempts, which differ by rendezvous id."""
    return f"{plan}-rdzv"
