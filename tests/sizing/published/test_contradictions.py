"""A published run fitted its GPU: what its row leaves out is chosen so that it does."""

import pytest

from rightsizer_engine.domain.layout import Sharding
from rightsizer_engine.domain.workload import LossKernel, Recompute
from rightsizer_engine.published.rows import case_from_row

ROW = {
    "framework": "torch FSDP2 trainer", "year": "2025", "model_name": "meta-llama/Llama-3.1-8B",
    "seq_len": "65536", "gpu": "H100-SXM5-80GB", "gpus": "8", "gpus_per_node": "8", "dp": "8", "tp": "1",
    "pp": "1", "cp": "1", "zero_stage_or_fsdp": "fsdp", "micro_batch": "1", "global_batch": "8",
    "precision": "bf16", "recompute": "full", "flash_attention": "1", "method": "full",
}  # fmt: skip


def case(**changes):
    return case_from_row(ROW | changes)


@pytest.mark.parametrize(
    ("changes", "loss"),
    [
        ({}, LossKernel.FUSED),
        ({"gpu": "B200-SXM-180GB"}, LossKernel.FUSED),
        ({"seq_len": "8192"}, LossKernel.AUTO),
        ({"seq_len": "16384", "year": "2024"}, LossKernel.AUTO),
        (
            {"framework": "Megatron-LM", "seq_len": "16384", "gpu": "A100-SXM4-40GB", "tp": "2"},
            LossKernel.AUTO,
        ),
    ],
    ids=["110 GiB", "on a GPU that could hold them", "few", "before fused losses", "vocabulary-parallel"],
)
def test_whole_logits_that_crowd_the_gpu_mean_a_fused_loss(changes, loss):
    """65,536 tokens of 128,256 logits at 14 bytes are 110 GiB."""
    assert case(**changes).workload.loss is loss


def test_an_unstated_fused_loss_is_noted():
    assert case().assumptions == ("loss not stated: fused, because whole logits would crowd the GPU",)


def test_a_run_that_fits_keeps_the_frameworks_usual_choices():
    found = case(seq_len="4096")
    assert (found.workload.loss, found.assumptions) == (LossKernel.AUTO, ())


def test_what_a_row_states_is_never_changed():
    found = case(loss="eager")
    assert found.workload.loss is LossKernel.EAGER
    assert not any(text.startswith("loss") for text in found.assumptions)


@pytest.mark.parametrize(
    ("sequence", "mode"), [("4096", Recompute.NONE), ("32768", Recompute.FULL)], ids=["fits", "does not"]
)
def test_recomputation_is_assumed_only_where_the_activations_exceed_the_gpu(sequence, mode):
    assert case(seq_len=sequence, recompute="", loss="chunked").layout.recompute == mode


def test_a_frozen_base_is_in_16_bits_where_32_exceed_the_gpu():
    """70B weights in 4 bytes on three GPUs of 80 GB, with a stack that keeps them as it trains them."""
    few = {
        "framework": "prime-rl",
        "model_name": "meta-llama/Llama-3.1-70B",
        "gpus": "3",
        "dp": "3",
        "global_batch": "3",
    }
    found = case(**few, method="lora", seq_len="2048")
    assert found.workload.frozen_bits == 16
    assert case(**few | {"gpus": "8", "dp": "8"}, method="lora", seq_len="2048").workload.frozen_bits == 0


def test_states_are_sharded_where_whole_ones_exceed_the_gpu_and_no_sharding_is_stated():
    """13B parameters in 16 bits throughout take 104 GB on every rank."""
    whole = {"framework": "HF Trainer", "zero_stage_or_fsdp": "", "seq_len": "2048"}
    whole["model_name"] = "meta-llama/Llama-2-13b-hf"
    assert case(**whole).layout.sharding > Sharding.NONE
    assert case(**whole, gpu="B300").layout.sharding == Sharding.NONE
