"""The TrainingPlan of a probe: the plan's own script and shape on few GPUs, for a few minutes. Pure."""

import math
from pathlib import Path

from rightsizer_api import load
from rightsizer_api.manifest import dump
from rightsizer_api.plan import LONGEST_NAME, TrainingPlan
from rightsizer_api.spec.resources import Elasticity, ElasticityMode, LayoutPins
from rightsizer_api.spec.workload import RecomputeMode
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.workload import Recompute
from rightsizer_engine.search.types import Option, Request
from rightsizer_engine.values import immutable

STEPS = 40
"""Steps that a probe should have time for; fewer micro-batches make steps shorter. A choice."""
PINNED = ("tp", "pp", "vpp", "cp", "ep", "micro_batch")
_FOLDER = "rightsizer-probe"


@immutable
class ProbeRequest:
    """The input of a probe: a plan that would run as `target`, and `clusters` where the probe may run.

    `home` is the folder of the plan's file, where workers start unless the plan says so; None: the executor
    knows no such folder. `tag` makes the probe's name unique.
    """

    plan: TrainingPlan
    target: Option
    request: Request
    clusters: tuple[Cluster, ...]
    limit_s: float
    home: Path | None = None
    tag: str = ""

    @property
    def room(self) -> int:
        """The most GPUs of the plan's type that the probe may take."""
        same = (c.max_gpus for c in self.clusters if c.gpu.name == self.target.cluster.gpu.name)
        return max(same, default=0)


def probe_plan(wanted: ProbeRequest, recompute: Recompute, *, gpus: int) -> TrainingPlan:
    """The plan of the probe: exact GPUs and shape, a time limit, no deadline, no restart."""
    plan, spec, layout = wanted.plan, wanted.plan.spec, wanted.target.layout
    replicas = gpus // (layout.tp * layout.pp * layout.cp)
    batch = replicas * layout.micro_batch * _micro_batches(wanted)
    launch, checkpoint = spec.launch, spec.launch.checkpoint
    if checkpoint is not None:
        path = f"{checkpoint.path.rstrip('/')}/{_FOLDER}{wanted.tag}"
        checkpoint = checkpoint.model_copy(update={"path": path, "interval": "auto"})
    changed = {
        "deadline": None,
        "budget": None,
        "active_deadline": f"{math.ceil(wanted.limit_s)}s",
        "ttl_after_finished": "1h",
        "elasticity": Elasticity(mode=ElasticityMode.OFF),
        "layout": LayoutPins(**{name: getattr(layout, name) for name in PINNED}),
        "resources": spec.resources.model_copy(
            update={"gpus": gpus, "min_gpus": 1, "max_gpus": None, "spare_nodes": 0}
        ),
        "workload": spec.workload.model_copy(
            update={
                "global_batch_tokens": None,
                "global_batch_sequences": batch,
                "recompute": RecomputeMode(recompute.name.lower()),
            }
        ),
        "launch": launch.model_copy(
            update={
                "checkpoint": checkpoint,
                "restarts": launch.restarts.model_copy(update={"limit": 0}),
                "working_dir": str(wanted.home / (launch.working_dir or ""))
                if wanted.home
                else launch.working_dir,
            }
        ),
    }
    metadata = plan.metadata.model_copy(
        update={"name": _name(wanted), "uid": None, "generation": None, "annotations": None}
    )
    draft = plan.model_copy(
        update={"metadata": metadata, "spec": spec.model_copy(update=changed), "status": None}
    )
    return load(dump(draft))


def _name(wanted: ProbeRequest) -> str:
    ending = f"-probe{wanted.tag}"
    return wanted.plan.metadata.name[: LONGEST_NAME - len(ending)].rstrip("-") + ending


def _micro_batches(wanted: ProbeRequest) -> int:
    """The micro-batches of a step: as in the plan, or fewer if time is too short for enough steps.

    A pipeline keeps at least one for each stage, and a multiple of them.
    """
    layout = wanted.target.layout
    one_s = wanted.target.step_s / layout.micro_batches
    affordable = int(wanted.limit_s / 2.0 / STEPS / one_s) // layout.pp * layout.pp
    return min(layout.micro_batches, max(layout.pp, affordable))
