"""The sized plan of status.sizing, parsed once. Pure."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rightsizer_api.placeholders import layout_of
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.values import immutable
from rightsizer_launch.worker_spec import gpus_per_node

_NEEDED = frozenset(
    {
        "gpus",
        "gpuType",
        "nodes",
        "layout",
        "globalBatchSequences",
        "stepSeconds",
        "finishSeconds",
        "checkpointIntervalSeconds",
    }
)


@immutable
class SizedPlan:
    """The operator's view of a sized plan. `document` is the whole of it, as the status holds it.

    `reserve_gpus` is what a staged plan may grow to, after `look_after_s` of training; 0 for other plans.
    """

    gpus: int
    gpu_type: str
    nodes: int
    layout: Layout
    layout_text: str
    batch_sequences: int
    step_s: float
    finish_s: float
    checkpoint_interval_s: float
    steps: float = 0.0
    tokens_per_s: float | None = None
    reserve_gpus: int = 0
    look_after_s: float = 0.0
    document: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> "SizedPlan | None":
        """Parse a status.sizing; None if it lacks what a launch needs, or contradicts itself."""
        if not document or not _NEEDED.issubset(document):
            return None
        layout, opening = layout_of(document["layout"]), document.get("opening") or {}
        if layout.gpus != document["gpus"]:
            return None
        return cls(
            gpus=document["gpus"],
            gpu_type=document["gpuType"],
            nodes=document["nodes"],
            layout=layout,
            layout_text=document.get("layoutText", ""),
            batch_sequences=document["globalBatchSequences"],
            step_s=document["stepSeconds"],
            finish_s=document["finishSeconds"],
            checkpoint_interval_s=document["checkpointIntervalSeconds"],
            steps=document.get("steps", 0.0),
            tokens_per_s=document.get("tokensPerSecond"),
            reserve_gpus=opening.get("reserveGPUs", 0),
            look_after_s=opening.get("lookAfterSeconds", 0.0),
            document=document,
        )

    @property
    def pod_gpus(self) -> int:
        """GPUs of each pod."""
        return gpus_per_node(self.layout, -(-self.gpus // max(1, self.nodes)))

    @property
    def is_staged(self) -> bool:
        """Whether it opens small, to be measured and resized."""
        return bool(self.document.get("opening"))

    def opened_as(self, before: "SizedPlan | None") -> "SizedPlan":
        """The size with the opening of the size before, whose reserve limits later growth too."""
        if before is None or not before.is_staged:
            return self
        found = SizedPlan.of({**self.document, "opening": before.document["opening"]})
        assert found is not None, "another opening does not make a sized plan incomplete"
        return found


def sized_gpu_type(status: Mapping[str, Any]) -> str:
    """The GPU type of a status.sizing, which is cheaper than to parse it; empty without one."""
    return str((status.get("sizing") or {}).get("gpuType", ""))
