"""Defaults of what a spec leaves out: the sequence length, the batch, a network's dimensions."""

import math

from rightsizer.domain.architecture import Architecture, parameters_matmul_active
from rightsizer.domain.framework import Framework
from rightsizer.domain.workload import Method, Recompute, Workload, usual_batch_tokens
from rightsizer.errors import InputError
from rightsizer.units import parse_tokens
from rightsizer_api.model import Dimensions
from rightsizer_api.workload import Lora, WorkloadSpec

__all__ = ["architecture_of", "workload_of"]

_PRETRAIN_SEQUENCE, _TUNE_SEQUENCE = 8192, 2048  # documented on the field
_TUNE_BATCH_SEQUENCES = 64


def workload_of(spec: WorkloadSpec, architecture: Architecture, framework: Framework) -> Workload:
    """The workload, with defaults for the sequence length and the batch."""
    lora = spec.lora or Lora.model_construct()
    sequence = spec.sequence_length or _usual_sequence(spec, architecture)
    return Workload(
        method=spec.method,
        tokens=_tokens(spec),
        sequence_tokens=sequence,
        global_batch_sequences=_batch(spec, architecture, sequence),
        precision=spec.precision,
        optimizer=spec.optimizer,
        recompute=Recompute[spec.recompute.upper()],
        quantised_bits=spec.quantised_bits,
        quantiser=spec.quantiser,
        scaling=spec.scaling,
        loss=spec.loss,
        compile=spec.compile,
        attention=spec.attention,
        library_year=_year(spec.library_version),
        lora_rank=lora.rank,
        lora_targets=lora.targets or framework.lora_targets,
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


def _usual_sequence(spec: WorkloadSpec, architecture: Architecture) -> int:
    usual = _PRETRAIN_SEQUENCE if spec.method is Method.PRETRAIN else _TUNE_SEQUENCE
    if spec.dataset is not None:
        usual = spec.dataset.length
    longest = architecture.max_sequence or architecture.fixed_tokens
    return min(usual, longest) if longest else usual


def _tokens(spec: WorkloadSpec) -> float:
    if spec.tokens is not None:
        return parse_tokens(spec.tokens, field="spec.workload.tokens")
    if spec.dataset is None:
        raise InputError("spec.workload.tokens", value=None, remedy="give tokens or dataset")
    examples = parse_tokens(spec.dataset.examples, field="spec.workload.dataset.examples")
    return max(1.0, examples * spec.dataset.length * spec.dataset.epochs)


def _batch(spec: WorkloadSpec, architecture: Architecture, sequence: int) -> int:
    if spec.global_batch_sequences is not None:
        return spec.global_batch_sequences
    if spec.global_batch_tokens is None:
        return _usual_batch(spec, architecture, sequence)
    field = "spec.workload.globalBatchTokens"
    tokens = parse_tokens(spec.global_batch_tokens, field=field)
    if tokens < sequence:
        remedy = f"is less than one sequence of {sequence} tokens"
        raise InputError(field, value=spec.global_batch_tokens, remedy=remedy)
    return max(1, round(tokens / sequence))


def _usual_batch(spec: WorkloadSpec, architecture: Architecture, sequence: int) -> int:
    """What suits the compute, as a power of two: it divides over most numbers of GPUs."""
    if spec.method is not Method.PRETRAIN:
        return _TUNE_BATCH_SEQUENCES
    parameters = float(parameters_matmul_active(architecture))
    tokens = usual_batch_tokens(parameters=parameters, tokens=_tokens(spec))
    return int(2 ** max(0, round(math.log2(tokens / sequence))))


def _year(release: str | None) -> float:
    """A release month as a year with a fraction; 0 where none is stated."""
    if release is None:
        return 0.0
    year, month = (int(part) for part in release.replace(".", "-").split("-"))
    return year + (2000 if year < 100 else 0) + (month - 1) / 12
