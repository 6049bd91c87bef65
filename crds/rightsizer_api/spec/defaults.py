"""Defaults of what a spec leaves out: sequence length, batch, precision, a network's dimensions."""

import math
from collections.abc import Sequence

from rightsizer_api.spec.model import Dimensions
from rightsizer_api.spec.workload import Lora, WorkloadSpec
from rightsizer_engine.catalog.recipes import Recipe
from rightsizer_engine.domain.architecture import Architecture, parameters_matmul_active
from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.domain.hardware import Gpu
from rightsizer_engine.domain.workload import Method, Precision, Recompute, Workload, usual_batch_tokens
from rightsizer_engine.errors import InputError
from rightsizer_engine.units import parse_tokens

_PRETRAIN_SEQUENCE, _TUNE_SEQUENCE = 8192, 2048  # documented on the field
_TUNE_BATCH_SEQUENCES = 64
_FEWEST_STEPS = 1000
"""A shorter run takes the batch that suits its compute, not the one of the model's own, far longer run."""


def workload_of(
    spec: WorkloadSpec,
    architecture: Architecture,
    framework: Framework,
    *,
    recipe: Recipe | None = None,
    gpus: Sequence[Gpu] = (),
) -> Workload:
    """The workload. Sequence, batch and precision default to the model's own recipe, where it has one.

    `gpus` are the GPU types that the plan allows: the recipe's precision needs all of them to have it.
    """
    lora = spec.lora or Lora.model_construct()
    sequence = spec.sequence_length or _usual_sequence(spec, architecture, recipe)
    return Workload(
        method=spec.method,
        tokens=_tokens(spec, sequence),
        sequence_tokens=sequence,
        global_batch_sequences=_batch(spec, architecture, sequence, recipe),
        precision=spec.precision or _usual_precision(recipe, gpus),
        optimizer=spec.optimizer,
        recompute=Recompute[spec.recompute.upper()],
        quantised_bits=spec.quantised_bits,
        quantiser=spec.quantiser,
        scaling=spec.scaling,
        loss=spec.loss,
        compile=spec.compile,
        attention=spec.attention,
        library_year=_year(spec.library_version),
        reference_model=spec.reference_model,
        lora_rank=lora.rank,
        lora_targets=lora.targets or framework.lora_targets,
        lora_adapters=lora.adapters,
        frozen_bits=lora.frozen_bits or 0,
    )


def architecture_of(given: Dimensions, name: str) -> Architecture:
    """The dimensions with their documented defaults filled in."""
    stated = given.model_dump(by_alias=False, exclude_none=True, exclude={"family", "attention"})
    usual = {
        "ffn_hidden": 4 * given.hidden,
        "kv_heads": given.heads,
        "head_dim": given.hidden // given.heads,
    }
    return Architecture(
        name=name,
        family=given.family,
        attention=given.attention,
        source="dimensions of the plan",
        **(usual | stated),
    )


def recipe_notes(
    spec: WorkloadSpec, workload: Workload, recipe: Recipe | None, gpus: Sequence[Gpu]
) -> tuple[str, ...]:
    """Notes on the parts of the workload from the model's recipe, and those that these GPUs cannot run."""
    lacking = ", ".join(gpu.name for gpu in gpus if not gpu.bf16_flop_per_s)
    fallback = spec.precision is None and workload.precision is Precision.FP16
    older = (f"no bf16 matmuls on {lacking}: sized in fp16, which needs loss scaling",) if fallback else ()
    return older if recipe is None else (*older, *_taken_notes(spec, workload, recipe, gpus))


def _taken_notes(
    spec: WorkloadSpec, workload: Workload, recipe: Recipe, gpus: Sequence[Gpu]
) -> tuple[str, ...]:
    sequence, batch = workload.sequence_tokens, workload.global_batch_sequences
    taken = [
        (f"sequences of {sequence:,} tokens", spec.sequence_length is None and not _example_length(spec)),
        (f"{batch:,} sequences a step", not _batch_stated(spec) and _own_batch(spec, recipe, sequence)),
        (f"{workload.precision}", spec.precision is None and _eight_bits(recipe, gpus)),
    ]
    parts = [text for text, own in taken if own]
    notes = [f"{', '.join(parts)}: {recipe.model}'s own recipe ({recipe.source})"] if parts else []
    if spec.precision is None and recipe.precision is Precision.FP8 and not _eight_bits(recipe, gpus):
        without = ", ".join(gpu.name for gpu in gpus if not gpu.fp8_flop_per_s) or "an unnamed GPU type"
        notes.append(
            f"{recipe.model} was pretrained in fp8, which {without} lacks: sized in {workload.precision}"
        )
    return tuple(notes)


def _usual_precision(recipe: Recipe | None, gpus: Sequence[Gpu]) -> Precision:
    """The recipe's fp8 where all GPU types have it, else bf16; fp16 where none has bf16 (before Ampere)."""
    if _eight_bits(recipe, gpus):
        return Precision.FP8
    sixteen = not gpus or any(gpu.bf16_flop_per_s for gpu in gpus)
    return Precision.BF16 if sixteen else Precision.FP16


def _eight_bits(recipe: Recipe | None, gpus: Sequence[Gpu]) -> bool:
    """Whether the model was pretrained in fp8 and every GPU type has it. All have 16 bits."""
    able = bool(gpus) and all(gpu.fp8_flop_per_s > 0 for gpu in gpus)
    return able and recipe is not None and recipe.precision is Precision.FP8


def _batch_stated(spec: WorkloadSpec) -> bool:
    return spec.global_batch_sequences is not None or spec.global_batch_tokens is not None


def _own_batch(spec: WorkloadSpec, recipe: Recipe | None, sequence: int) -> bool:
    """Whether the recipe has a batch, and the run is long enough for it."""
    return recipe is not None and 0 < recipe.batch_tokens * _FEWEST_STEPS <= _tokens(spec, sequence)


def _usual_sequence(spec: WorkloadSpec, architecture: Architecture, recipe: Recipe | None) -> int:
    usual = _PRETRAIN_SEQUENCE if spec.method is Method.PRETRAIN else _TUNE_SEQUENCE
    if recipe is not None:
        usual = recipe.sequence_tokens
    usual = _example_length(spec) or usual
    longest = architecture.max_sequence or architecture.fixed_tokens
    return min(usual, longest) if longest else usual


def _example_length(spec: WorkloadSpec) -> int:
    """Tokens of an example of the data set; 0 where nothing states them."""
    return (spec.dataset.length or 0) if spec.dataset is not None else 0


def _tokens(spec: WorkloadSpec, sequence: int) -> float:
    if spec.tokens is not None:
        return parse_tokens(spec.tokens, field="spec.workload.tokens")
    if spec.dataset is None:
        raise InputError("spec.workload.tokens", value=None, remedy="give tokens or dataset")
    examples = parse_tokens(spec.dataset.examples, field="spec.workload.dataset.examples")
    return max(1.0, examples * (spec.dataset.length or sequence) * spec.dataset.epochs)


def _batch(spec: WorkloadSpec, architecture: Architecture, sequence: int, recipe: Recipe | None) -> int:
    if spec.global_batch_sequences is not None:
        return spec.global_batch_sequences
    if spec.global_batch_tokens is None:
        if recipe is not None and _own_batch(spec, recipe, sequence):
            return max(1, round(recipe.batch_tokens / sequence))
        return _usual_batch(spec, architecture, sequence)
    field = "spec.workload.globalBatchTokens"
    tokens = parse_tokens(spec.global_batch_tokens, field=field)
    if tokens < sequence:
        meant = f"{tokens:.0f} sequences are {tokens * sequence:.0f} tokens"
        remedy = f"is in tokens, and less than one sequence of {sequence}; {meant}"
        raise InputError(field, value=spec.global_batch_tokens, remedy=remedy)
    return max(1, round(tokens / sequence))


def _usual_batch(spec: WorkloadSpec, architecture: Architecture, sequence: int) -> int:
    """A batch that suits the compute, as a power of two: it divides over most numbers of GPUs."""
    if spec.method is not Method.PRETRAIN:
        return _TUNE_BATCH_SEQUENCES
    parameters = float(parameters_matmul_active(architecture))
    tokens = usual_batch_tokens(parameters=parameters, tokens=_tokens(spec, sequence))
    return int(2 ** max(0, round(math.log2(tokens / sequence))))


def _year(release: str | None) -> float:
    """A release month as a year with a fraction; 0 where none is stated."""
    if release is None:
        return 0.0
    year, month = (int(part) for part in release.replace(".", "-").split("-"))
    return year + (2000 if year < 100 else 0) + (month - 1) / 12
