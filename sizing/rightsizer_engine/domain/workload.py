"""The workload: method, tokens, batch, precision, and the settings that change time or memory."""

import enum

from rightsizer_engine.values import immutable

# Optimal batch against compute, fitted on runs of 1e17 to 2e19 FLOP: DeepSeek LLM (arXiv:2401.02954, eq. 1)
_BATCH_TOKENS_PER_FLOP_POWER, _BATCH_POWER = 0.2920, 0.3271
# The largest step that Llama 3 405B took (arXiv:2407.21783, 3.4.1); the law is not trusted past it
_MOST_BATCH_TOKENS = 16e6


class Method(enum.StrEnum):
    """The method of training: everything from scratch, everything from a checkpoint, or low-rank adapters."""

    PRETRAIN = "pretrain"
    FINETUNE = "finetune"
    LORA = "lora"
    QLORA = "qlora"


class Precision(enum.StrEnum):
    """The matmuls' data type; states follow the framework's profile."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    NVFP4 = "nvfp4"
    FP32 = "fp32"


class Optimizer(enum.StrEnum):
    """Optimizers by the bytes they keep for a parameter."""

    ADAMW = "adamw"
    ADAMW_8BIT = "adamw8bit"
    SGD = "sgd"
    ADAFACTOR = "adafactor"
    LION = "lion"
    MUON = "muon"


class Recompute(enum.IntEnum):
    """The recomputation in backward. AUTO lets the search choose."""

    AUTO = -1
    NONE = 0
    SELECTIVE = 1
    FULL = 2


class LossKernel(enum.StrEnum):
    """The kernel of the cross-entropy. AUTO follows the framework's profile."""

    AUTO = "auto"
    EAGER = "eager"
    COMPILED = "compiled"
    FUSED = "fused"
    CHUNKED = "chunked"


class AttentionKernel(enum.StrEnum):
    """The kernel of attention.

    AUTO follows the framework's profile, FLASH is the kernel that its users mean by "flash", SDPA what torch
    picks on that GPU, CUDNN also TransformerEngine's. FLASH_1 to FLASH_4 are FlashAttention's generations
    (the first also in Triton). EAGER materialises the scores.
    """

    AUTO = "auto"
    FLASH = "flash"
    FLASH_1 = "flash1"
    FLASH_2 = "flash2"
    FLASH_3 = "flash3"
    FLASH_4 = "flash4"
    CUDNN = "cudnn"
    SDPA = "sdpa"
    EAGER = "eager"


class Quantiser(enum.StrEnum):
    """The unpacker of frozen weights: bitsandbytes in a kernel of its own, GPTQ by torch operations."""

    BITSANDBYTES = "bitsandbytes"
    GPTQ = "gptq"


class ScaleGranularity(enum.StrEnum):
    """The part of an 8-bit operand that shares a scale: all of it (or a block in hardware), or a row."""

    TENSOR = "tensor"
    ROW = "row"


@immutable
class Workload:
    """One training job, independent of hardware and layout.

    `global_batch_sequences` sequences of `sequence_tokens` make a step. `library_year` is the release year
    (with fraction) of the framework, 0 if not stated. `variable_length` says that batches vary in length
    (neither padded nor packed). `compile` None: as the framework usually does. `assumed_inputs`: the
    sequence, the batch or the GPU is not stated but assumed; `assumed_dimensions`: only the model's size is
    known. `lora_targets` joins the adapted matrices with "+": "attention" or "all" (of dense layers),
    "experts", "embeddings" (trained whole); `lora_adapters` are trained at once. `frozen_bits` are those of
    an unquantised frozen weight (0: as the framework keeps weights). With a `reference_model` a frozen copy
    of the model reads each sequence too (DPO); with adapters this is the base without them.
    """

    method: Method = Method.PRETRAIN
    tokens: float
    sequence_tokens: int
    global_batch_sequences: int
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.ADAMW
    recompute: Recompute = Recompute.AUTO
    lora_rank: int = 16
    lora_targets: str = "attention"
    lora_adapters: int = 1
    frozen_bits: int = 0
    quantised_bits: int = 4
    quantiser: Quantiser = Quantiser.BITSANDBYTES
    loss: LossKernel = LossKernel.AUTO
    compile: bool | None = None
    attention: AttentionKernel = AttentionKernel.AUTO
    library_year: float = 0.0
    variable_length: bool = False
    reference_model: bool = False
    scaling: ScaleGranularity = ScaleGranularity.TENSOR
    assumed_inputs: bool = False
    assumed_dimensions: bool = False

    @property
    def steps(self) -> float:
        """Optimizer steps: tokens over tokens per step (rounded up to a whole one)."""
        return float(max(1.0, -(-self.tokens // (self.global_batch_sequences * self.sequence_tokens))))


def usual_batch_tokens(*, parameters: float, tokens: float) -> float:
    """Tokens of a pretraining step that suit a run of 6 FLOP per parameter and token; at most 16M."""
    flop = 6.0 * parameters * tokens
    return float(min(_BATCH_TOKENS_PER_FLOP_POWER * flop**_BATCH_POWER, _MOST_BATCH_TOKENS))
