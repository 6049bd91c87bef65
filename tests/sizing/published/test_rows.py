import pytest

from rightsizer_engine.domain.architecture import AttentionKind
from rightsizer_engine.domain.layout import Offload, Sharding
from rightsizer_engine.domain.workload import (
    AttentionKernel,
    LossKernel,
    Method,
    Optimizer,
    Precision,
    Quantiser,
    Recompute,
    ScaleGranularity,
)
from rightsizer_engine.errors import UnsupportedError
from rightsizer_engine.published.rows import COLUMNS, OPTIONAL_COLUMNS, case_from_row

ROW = {
    "framework": "Megatron-Core r0.8.0", "year": "2024", "model_name": "own-7b", "layers": "32",
    "hidden": "4096", "ffn_hidden": "11008", "heads": "32", "kv_heads": "8", "head_dim": "128",
    "vocab": "32000", "gated_mlp": "1", "tied_embeddings": "0", "seq_len": "4096",
    "gpu": "H100-SXM5-80GB", "gpus": "64", "gpus_per_node": "8",
    "interconnect_inter": "8x400 Gb/s InfiniBand per node", "dp": "8", "tp": "4", "pp": "2", "vpp": "1",
    "cp": "1", "zero_stage_or_fsdp": "zero1(distributed optimizer)", "micro_batch": "1",
    "global_batch": "256", "grad_accum": "32", "precision": "bf16", "recompute": "none",
    "method": "pretrain",
}  # fmt: skip
MEASURED = ("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_pct", "hfu_pct", "peak_memory_gib",
            "implied_util", "note", "id", "source", "usable_step_time", "usable_memory")  # fmt: skip


SHAPE = ("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab")


def case(**changes):
    return case_from_row(ROW | changes)


def test_a_full_row_is_read_as_written():
    found = case()
    layout = found.layout
    assert (layout.dp, layout.tp, layout.pp, layout.micro_batches) == (8, 4, 2, 32)
    assert layout.sharding is Sharding.ZERO1
    assert layout.sequence_parallel
    assert found.cluster.inter_bytes_per_s == 50e9
    assert found.framework.name == "megatron-core"


def test_measured_columns_notes_and_names_of_sources_are_never_read():
    class Guarded(dict):
        def get(self, key, default=None):
            assert key not in MEASURED
            return super().get(key, default)

        def __getitem__(self, key):
            assert key not in MEASURED
            return super().__getitem__(key)

    assert case_from_row(Guarded(ROW | dict.fromkeys(MEASURED, "1"))) == case()
    assert not set(MEASURED) & {*COLUMNS, *OPTIONAL_COLUMNS}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dp": ""}, 8),
        ({"dp": "nan", "gpus": "32.0"}, 4),
        ({"dp": "8.0"}, 8),
        ({"dp": "8", "cp": "2", "gpus": "64"}, 4),
    ],
    ids=["absent", "floats as text", "float", "context ranks counted as data ranks"],
)
def test_data_parallel_ranks_follow_when_not_stated(changes, expected):
    assert case(**changes).layout.dp == expected


@pytest.mark.parametrize(
    ("text", "mode", "layers"),
    [
        ("full", Recompute.FULL, 0),
        ("full(block,21 layers)", Recompute.FULL, 21),
        ("full(uniform,1)", Recompute.FULL, 0),
        ("selective([moe_act])", Recompute.SELECTIVE, 0),
        ("", Recompute.NONE, 0),
    ],
)
def test_recomputation_words(text, mode, layers):
    layout = case(recompute=text).layout
    assert (layout.recompute, layout.recompute_layers) == (mode, layers)


@pytest.mark.parametrize(
    ("text", "stage", "group"),
    [
        ("ddp", Sharding.NONE, 0),
        ("zero1(within 4 dp ranks)", Sharding.ZERO1, 4),
        ("zero2(fsdp shard_grad_op)", Sharding.ZERO2, 0),
        ("zero3", Sharding.ZERO3, 0),
        ("fsdp", Sharding.ZERO3, 0),
        ("ddp(fsdp no_shard)", Sharding.NONE, 0),
        ("hsdp", Sharding.HSDP, 1),
    ],
)
def test_sharding_words(text, stage, group):
    layout = case(zero_stage_or_fsdp=text).layout
    assert (layout.sharding, layout.shard_group) == (stage, group)


@pytest.mark.parametrize(
    ("text", "gigabits"),
    [
        ("4x InfiniBand HDR per node (800 Gb/s)", 100),
        ("Omni-Path 4x100 Gb/s per node (somewhere)", 50),
        ("RoCE 1600 Gbps/node", 200),
        ("EFA 3200 Gbps (a cluster)", 400),
        ("RDMA 400 Gb/s per GPU", 400),
        ("InfiniBand 8x50 GB/s", 400),
        ("8x HDR InfiniBand per node", 200),
        ("Storage: 2x ConnectX-7 IB NDR 400Gb/s, Compute: 8x ConnectX-7 IB NDR 400Gb/s, Ma", 400),
        ("4x100Gb RoCE per node", 50),
        ("10G Ethernet", 1.25),
    ],
)
def test_link_words_become_bytes_per_second_and_gpu(text, gigabits):
    cluster = case(interconnect_inter=text).cluster
    assert cluster.inter_bytes_per_s == pytest.approx(gigabits / 8 * 1e9)
    assert cluster.inter_known


def test_an_unstated_link_is_the_gpus_usual_one_with_a_note():
    assert not case(interconnect_inter="Ethernet, Infiniband").cluster.inter_known


def test_pcie_only_nodes_have_no_fast_domain():
    cluster = case(gpu="RTX-4090-24GB", interconnect_intra="PCIe (no NVLink)").cluster
    assert cluster.nvlink_domain_gpus == 1


@pytest.mark.parametrize(
    ("changes", "read"),
    [
        (
            {"method": "qlora", "quantised_bits": "8"},
            lambda w: (w.method, w.quantised_bits) == (Method.QLORA, 8),
        ),
        ({"method": "vera"}, lambda w: w.method == Method.LORA),
        ({"optimizer": "bnb 8-bit AdamW"}, lambda w: w.optimizer == Optimizer.ADAMW_8BIT),
        ({"precision": "fp8"}, lambda w: w.precision == Precision.FP8),
        ({"flash_attention": "0"}, lambda w: w.attention == AttentionKernel.EAGER),
        ({"lora_rank": "64", "lora_targets": "ALL"}, lambda w: (w.lora_rank, w.lora_targets) == (64, "all")),
        ({"quantiser": "AutoGPTQ"}, lambda w: w.quantiser == Quantiser.GPTQ),
        ({"scaling": "rowwise"}, lambda w: w.scaling == ScaleGranularity.ROW),
    ],
    ids=["qlora", "other adapters", "8-bit optimizer", "fp8", "no flash", "adapter shape", "gptq", "rows"],
)
def test_workload_words(changes, read):
    assert read(case(**changes).workload)


@pytest.mark.parametrize(
    ("columns", "kernel"),
    [
        ({"flash_attention": "1"}, AttentionKernel.FLASH),
        ({"flash_attention": "FA2"}, AttentionKernel.FLASH_2),
        ({"attention": "flash_attention_3"}, AttentionKernel.FLASH_3),
        ({"attention": "FlashAttention-4"}, AttentionKernel.FLASH_4),
        ({"attention": "flash-attn 2.7.4"}, AttentionKernel.FLASH_2),
        ({"attention": "TE", "flash_attention": "1"}, AttentionKernel.CUDNN),
        ({"attention": "torch SDPA"}, AttentionKernel.SDPA),
        ({"attention": "whatever"}, AttentionKernel.AUTO),
    ],
)
def test_a_row_may_name_the_generation_of_its_attention_kernel(columns, kernel):
    assert case(**columns).workload.attention == kernel


@pytest.mark.parametrize(
    ("column", "text", "fact", "found"),
    [
        ("overlap_experts", "1", "overlaps_expert_exchange", True),
        ("overlap_gradients", "0", "overlaps_gradient_reduce", False),
        ("overlap_gradients", "", "overlaps_gradient_reduce", True),
        ("fp8_gather", "1", "gathers_fp8_weights", True),
    ],
    ids=["experts hidden", "gradients not hidden", "not said", "weights in 8 bits"],
)
def test_a_table_may_state_the_hidden_exchanges(column, text, fact, found):
    assert getattr(case(**{column: text}).framework, fact) is found


def test_a_table_may_state_overlapped_tensor_parallel_traffic():
    assert case(overlap_tensor="1").framework.overlaps_tensor_parallel
    assert not case(overlap_tensor="").framework.overlaps_tensor_parallel


def test_a_table_may_state_latent_attention_predicted_layers_and_waiting_gradients():
    sizes = {"q_lora_rank": "192", "kv_lora_rank": "64", "qk_nope_head_dim": "16", "v_head_dim": "16"}
    found = case(
        **sizes, qk_rope_head_dim="8", mtp_layers="1", deferred_head_gradients="2", interleaved_group="5"
    )
    shape = found.architecture
    assert (shape.attention, shape.kv_lora_rank, shape.v_head_dim) == (AttentionKind.LATENT, 64, 16)
    assert (shape.kv_heads, shape.mtp_layers) == (shape.heads, 1)
    assert (found.framework.deferred_head_gradients, found.framework.interleaved_group) == (2, 5)


def test_an_unnamed_framework_s_loss_is_fused_where_logits_crowd_before_2025_where_they_do_not_fit():
    long = {"framework": "", "zero_stage_or_fsdp": "fsdp", "tp": "1", "pp": "1", "vocab": "128256"}
    crowding, too_long = {"seq_len": "16384", "recompute": "full"}, {"seq_len": "131072"}
    assert case(**long, **crowding, year="2025").workload.loss is LossKernel.FUSED
    assert case(**long, **crowding, year="2024").workload.loss is LossKernel.AUTO
    assert case(**long, **too_long, year="2024").workload.loss is LossKernel.FUSED


def test_offload_words():
    assert case(offload="param_cpu+activation").layout.offload == Offload.PARAMETERS | Offload.ACTIVATIONS


@pytest.mark.parametrize(
    ("cell", "percent"),
    [
        ("activation_cpu(8 layers)", 25),
        ("activation alpha=0.25", 25),
        ("activation share 0.5", 50),
        ("activation 70 %", 70),
        ("activation alpha=1.00", 0),  # 0: all
        ("activation", 0),
    ],
)
def test_a_share_of_the_activations_is_offloaded(cell: str, percent: int):
    layout = case(offload=cell, layers="32", pp="1").layout
    assert (layout.offload, layout.offload_percent) == (Offload.ACTIVATIONS, percent)


def test_a_share_of_zero_offloads_nothing():
    assert case(offload="activation alpha=0.000").layout.offload == Offload.NONE


def test_a_share_beyond_one_is_refused():
    with pytest.raises(UnsupportedError, match="share from 0 to 1"):
        case(offload="activation alpha=3")


def test_a_recognised_truncated_model_keeps_its_attention_and_its_mix_of_layers():
    sizes = {"layers": "4", "hidden": "7168", "heads": "128", "moe_experts": "256", "moe_topk": "8"}
    shape = case(model_name="DeepSeek-V3 (4 layers)", moe_ffn_hidden="2048", **sizes).architecture
    assert (shape.kv_lora_rank, shape.dense_layers, shape.layers, shape.mtp_layers) == (512, 1, 4, 0)


def test_a_truncated_hybrid_keeps_its_mix_of_layers():
    found = case(
        **dict.fromkeys(SHAPE, "") | {"model_name": "Qwen3-Next 80B-A3B", "layers": "8"}
    ).architecture
    assert (found.layers, found.attention_free_layers, found.linear_layers) == (8, 6, 6)


@pytest.mark.parametrize("size", ["2.7B", "7.3B", "7.1B", "9B", "456B", "48B"])
def test_a_size_alone_is_never_read_as_a_hybrid_or_an_image_tower(size):
    found = case(model_name=f"secret-{size}", **dict.fromkeys(SHAPE, "")).architecture
    assert found.attention_free_layers == found.linear_layers == found.encoder_layers == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "TPU v5e"}, "TPU"),
        ({"gpu": "Ascend 910B"}, "gpu"),
        ({"layers": "", "model_name": "our own"}, "layers"),
        ({"micro_batch": "several"}, "micro_batch"),
        ({"dp": "-4"}, "dp"),
        ({"tp": "0"}, "tp: '0' is below 1"),
        ({"model_name": "Llama 3.1 8B", "layers": "0"}, "layers: '0' is below 1"),
        ({"heads": "0.2"}, "heads: '0.2' is below 1"),
    ],
    ids=[
        *("not a GPU", "an unknown GPU", "a model of no size", "not a number", "negative"),
        *("no split", "no layers", "a part of a head"),
    ],
)
def test_what_cannot_be_modelled_is_refused_with_the_reason(changes, reason):
    with pytest.raises(UnsupportedError, match=reason):
        case(**changes)


@pytest.mark.parametrize(
    ("changes", "said", "read"),
    [
        ({"seq_len": ""}, "seq_len not stated: 4,096 tokens", lambda c: c.workload.sequence_tokens == 4096),
        (
            {"seq_len": "", "model_name": "Llama 3.1 8B"},
            "seq_len not stated: 8,192 tokens",
            lambda c: c.workload.sequence_tokens == 8192,
        ),
        (
            {"seq_len": "", "method": "lora", "framework": "trl", "year": "2026", "zero_stage_or_fsdp": ""},
            "seq_len not stated: 1,024 tokens",
            lambda c: c.workload.sequence_tokens == 1024,
        ),
        (
            {"gpu": "", "year": "2022"},
            "gpu not stated: A100-SXM4-80GB",
            lambda c: "A100" in c.cluster.gpu.name,
        ),
        (
            {"gpu": "RTX 5880 Ada"},
            "gpu 'RTX 5880 Ada' not in the catalog: RTX 5000 Ada",
            lambda c: c.cluster.gpu.name == "RTX 5000 Ada",
        ),
        (
            {"micro_batch": "", "global_batch": "", "grad_accum": ""},
            "batch not stated: one sequence a GPU",
            lambda c: c.workload.global_batch_sequences == 8,
        ),
    ],
    ids=["sequence", "the model's own recipe", "the framework's default", "GPU", "a similar GPU", "batch"],
)
def test_unstated_inputs_are_assumed_with_a_note(changes, said, read):
    found = case(**changes)
    assert found.assumptions == (said,)
    assert found.workload.assumed_inputs
    assert read(found)
    assert (case().assumptions, case().workload.assumed_inputs) == ((), False)


@pytest.mark.parametrize(
    ("name", "sizes", "parameters"),
    [
        ("own-7b1", {}, 7.1e9),
        ("own_350M-chat", {}, 0.35e9),
        ("own", {"params_b": "200", "hidden": "14336"}, 200e9),
        ("own-30B-A3B", {}, 30e9),
    ],
    ids=["a version in the size", "millions", "a stated width", "experts"],
)
def test_a_model_of_which_only_the_size_is_known_is_shaped_like_one_of_that_size(name, sizes, parameters):
    unknown = dict.fromkeys(("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab"), "")
    unknown |= {"gated_mlp": "", "tied_embeddings": "", "model_name": name}
    found = case(**(unknown | sizes))
    assert found.architecture.parameters_total == pytest.approx(parameters, rel=0.05)
    assert found.workload.assumed_dimensions
    assert "dimensions not stated: shaped like" in found.assumptions[0]
    assert (found.architecture.experts > 0) == ("A3B" in name)


def test_a_published_run_recomputes_at_least_enough_to_fit():
    long = {"seq_len": "65536", "tp": "2", "dp": "16", "recompute": "", "flash_attention": "1"}
    assert case(**long).layout.recompute is Recompute.FULL
    assert case(recompute="").layout.recompute is Recompute.NONE
    assert case(**(long | {"recompute": "none"})).layout.recompute is Recompute.NONE


def test_an_unstated_micro_batch_is_one_sequence():
    layout = case(micro_batch="", grad_accum="").layout
    assert (layout.micro_batch, layout.micro_batches) == (1, 32)


def test_unstated_sharding_is_the_frameworks_own():
    assert case(framework="torchtitan", zero_stage_or_fsdp="").layout.sharding is Sharding.ZERO3


@pytest.mark.parametrize(
    ("framework", "year", "released"),
    [
        ("Megatron-Bridge (NeMo 26.04.01)", "2026", 2026.25),
        ("Megatron-Bridge (NeMo 25.09)", "", 2025 + 8 / 12),
        ("Megatron-Core r0.8.0", "2024", 2024.0),
        ("NeMo 24.05", "2021", 2021.0),
    ],
    ids=["calendar version", "no year", "another version", "a version far from the year"],
)
def test_a_calendar_version_dates_the_framework(framework, year, released):
    assert case(framework=framework, year=year).workload.library_year == pytest.approx(released)


def test_a_named_profile_replaces_the_framework_text():
    assert (
        case_from_row(ROW | {"framework": "torchtitan", "profile": "megatron-core"}).framework.name
        == "megatron-core"
    )
