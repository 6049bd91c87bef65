"""`rightsizer.plan` and `rightsizer.estimate_layout`: the two requests that Python programs make.

Each keyword is the option of the same name: `global_batch="4M"` is `--global-batch 4M`.
"""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal

from rightsizer.results import Estimate, NoPlan, Plan, Refused, estimated, planned
from rightsizer_cli.requests.flags import FixedLayoutFlags, GoalFlags, HardwareFlags, JobFlags, LayoutFlags
from rightsizer_cli.requests.inputs import calibrated, read
from rightsizer_cli.requests.one_layout import priced
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_engine.search.size import size

_FLAG = "--"


def plan(
    *,
    model: str | None = None,
    tokens: str | int | None = None,
    deadline: str | timedelta | None = None,
    gpu: str | Sequence[str] | None = None,
    manifest: str | Path | None = None,
    method: str | None = None,
    sequence_length: int | None = None,
    global_batch: str | int | None = None,
    precision: str | None = None,
    framework: str | None = None,
    confidence: float | None = None,
    budget: str | float | None = None,
    objective: Literal["gpus", "cost", "time"] | None = None,
    gpus: int | None = None,
    max_gpus: int | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    price: str | float | None = None,
    tp: int | None = None,
    pp: int | None = None,
    cp: int | None = None,
    ep: int | None = None,
    calibrate: bool = True,
) -> Plan | NoPlan:
    """Find the fewest GPUs, and the layout, that finish in time; a NoPlan says why no number does.

    Args:
        model: Model: a name of `rightsizer models`, a Hub id, or a folder with a config.json.
        tokens: Tokens to train on: "100B", or a whole number.
        deadline: Finish within: "72h", "3d", or a timedelta. None: no deadline.
        gpu: GPU type (`rightsizer gpus`), several in a list, or one cloud node type.
        manifest: A TrainingPlan file; the other arguments override its fields.
        method: pretrain (default), finetune, lora or qlora.
        sequence_length: Tokens in a sequence.
        global_batch: Tokens in a step over all GPUs: "4M", or a whole number.
        precision: bf16, fp16, fp8, nvfp4 or fp32.
        framework: The training framework (`rightsizer frameworks`). None: the best for it.
        confidence: Probability with which the deadline must hold (default 0.9).
        budget: Most the run may cost, US dollars: "60k", or a whole number.
        objective: What is minimised within the limits: gpus (default), cost or time.
        gpus: Exact number of GPUs, instead of the fewest.
        max_gpus: Most GPUs to use.
        nodes: Exact number of nodes, instead of `gpus`.
        gpus_per_node: GPUs in a node.
        price: Price of a GPU-hour, US dollars. None: the list price.
        tp: Fixed tensor-parallel ranks.
        pp: Fixed pipeline stages.
        cp: Fixed context-parallel ranks.
        ep: Fixed expert-parallel ranks.
        calibrate: Correct the prediction by your own measured runs (`rightsizer calibrate --show`).

    Raises:
        Refused: An argument is wrong, or the engine does not model the request.
    """
    with _refusals():
        wanted, request = read(
            None if manifest is None else Path(manifest),
            JobFlags(
                model=model,
                tokens=_text(tokens),
                method=method,
                sequence_length=sequence_length,
                global_batch=_text(global_batch),
                precision=precision,
                framework=framework,
            ),
            GoalFlags(
                deadline=_duration(deadline),
                confidence=confidence,
                budget=_text(budget),
                objective=objective,
                gpus=gpus,
                max_gpus=max_gpus,
            ),
            HardwareFlags(gpu=_types(gpu), nodes=nodes, gpus_per_node=gpus_per_node, price=_text(price)),
            FixedLayoutFlags(tp=tp, pp=pp, cp=cp, ep=ep),
        )
        return planned(size(calibrated(request, ignore=not calibrate)), wanted)


def estimate_layout(
    *,
    model: str,
    gpu: str,
    gpus: int | None = None,
    dp: int | None = None,
    tp: int = 1,
    pp: int = 1,
    vpp: int = 1,
    cp: int = 1,
    ep: int = 1,
    micro_batch: int = 1,
    sharding: Literal["none", "zero1", "zero2", "zero3", "hsdp"] | None = None,
    method: str | None = None,
    sequence_length: int | None = None,
    global_batch: str | int | None = None,
    precision: str | None = None,
    recompute: Literal["auto", "none", "selective", "full"] | None = None,
    framework: str | None = None,
    gpus_per_node: int | None = None,
    calibrate: bool = True,
) -> Estimate:
    """Predict time and memory of a step of one given layout, whether it fits or not.

    Args:
        model: Model: a name of `rightsizer models`, a Hub id, or a folder with a config.json.
        gpu: GPU type (`rightsizer gpus`), or one cloud node type.
        gpus: GPUs; by default dp x tp x pp x cp.
        dp: Data-parallel ranks; by default from `gpus`.
        tp: Tensor-parallel ranks.
        pp: Pipeline stages.
        vpp: Virtual stages on each pipeline rank.
        cp: Context-parallel ranks.
        ep: Expert-parallel ranks.
        micro_batch: Sequences in a forward pass.
        sharding: none, zero1, zero2, zero3 (FSDP) or hsdp. None: the most that the framework supports.
        method: pretrain (default), finetune, lora or qlora.
        sequence_length: Tokens in a sequence.
        global_batch: Tokens in a step over all GPUs: "4M", or a whole number.
        precision: bf16, fp16, fp8, nvfp4 or fp32.
        recompute: Activations recomputed in backward: "auto", "none", "selective" or "full".
        framework: The training framework (`rightsizer frameworks`). None: the best for it.
        gpus_per_node: GPUs in a node.
        calibrate: Correct the prediction by your own measured runs.

    Raises:
        Refused: An argument is wrong, or the engine does not model the request.
    """
    with _refusals():
        found = priced(
            None,
            JobFlags(
                model=model,
                method=method,
                sequence_length=sequence_length,
                global_batch=_text(global_batch),
                precision=precision,
                recompute=recompute,
                framework=framework,
            ),
            HardwareFlags(gpu=_types(gpu), gpus_per_node=gpus_per_node),
            LayoutFlags(
                gpus=gpus,
                dp=dp,
                tp=tp,
                pp=pp,
                vpp=vpp,
                cp=cp,
                ep=ep,
                micro_batch=micro_batch,
                sharding=sharding,
            ),
            ignore=not calibrate,
        )
        return estimated(found.option, found.fits)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Raise a user's mistake as Refused, named after the argument instead of the option."""
    try:
        yield
    except InputError as error:
        raise Refused(_argument(error.field), value=error.value, remedy=error.remedy) from None
    except RightsizerError as error:
        raise Refused("", value=None, remedy=str(error)) from None


def _argument(field: str) -> str:
    if field == "FILE":
        return "manifest"
    return field.removeprefix(_FLAG).replace("-", "_") if field.startswith(_FLAG) else field


def _text(count: str | float | None) -> str | None:
    """A quantity as text, which is how the command line states it."""
    return None if count is None else str(count)


def _duration(span: str | timedelta | None) -> str | None:
    return f"{span.total_seconds():.0f}s" if isinstance(span, timedelta) else span


def _types(gpu: str | Sequence[str] | None) -> list[str] | None:
    return [gpu] if isinstance(gpu, str) else None if gpu is None else list(gpu)
