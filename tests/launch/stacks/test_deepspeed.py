import argparse

import pytest

from rightsizer_launch.stacks.deepspeed import merged, named_configs, without_config

PLANS = {
    "train_batch_size": 16,
    "zero_optimization": {"stage": 2, "overlap_comm": True},
    "fp16": {"enabled": False},
}


def test_the_scripts_optimizer_stays_under_the_plans_batch_and_stage():
    own = {
        "train_batch_size": 8,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
        "zero_optimization": {"stage": 3, "reduce_bucket_size": 1000},
        "fp16": {"enabled": True, "loss_scale": 0},
    }
    config = merged(own, PLANS)
    assert (config["train_batch_size"], config["optimizer"]) == (16, own["optimizer"])
    assert config["zero_optimization"] == {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 1000}
    assert config["fp16"] == {"enabled": False, "loss_scale": 0}


@pytest.mark.parametrize(
    "own",
    [
        {"tensor_parallel": {"autotp_size": 2}},
        {"sequence_parallel_size": 2, "data_parallel_size": 2},
        {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}},
    ],
    ids=["tensor parallelism", "sequence parallelism", "offloading"],
)
def test_a_layout_that_the_plan_has_not_is_left_out(own):
    assert merged(own, PLANS) == PLANS


def test_the_plans_config_is_the_last_that_the_command_names():
    argv = ["train.py", "--deepspeed_config", "own.json", "--deepspeed", "--deepspeed_config=plans.json"]
    assert named_configs(argv) == ["own.json", "plans.json"]
    assert named_configs(["train.py", "--epochs", "3"]) == []


def test_initialize_is_given_one_config():
    args = argparse.Namespace(deepspeed_config="own.json", epochs=3)
    assert vars(without_config(args)) == {"deepspeed_config": None, "epochs": 3}
    assert args.deepspeed_config == "own.json"
    assert without_config(None) is None
