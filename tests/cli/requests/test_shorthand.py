"""Shorthand is expanded to plan fields."""

import pytest

from rightsizer_cli.requests.flags import FixedLayoutFlags, GoalFlags, HardwareFlags, JobFlags
from rightsizer_cli.requests.inputs import read
from rightsizer_cli.requests.shorthand import spelled_out
from rightsizer_engine.errors import InputError

JOB = JobFlags(model="gpt2", tokens="1B", global_batch="512k")


def asked(hardware: HardwareFlags, job: JobFlags = JOB):
    return read(None, job, GoalFlags(), hardware, FixedLayoutFlags())[1]


@pytest.mark.parametrize(
    "hardware",
    [
        HardwareFlags(gpu=["p4d.24xlarge"]),
        HardwareFlags(node_shape="p4d.24xlarge"),
        HardwareFlags(gpu=["A100-SXM4-40GB"], node_shape="p4d.24xlarge"),
    ],
)
def test_a_node_type_names_the_gpu_the_network_and_the_price(hardware):
    (cluster,) = asked(hardware).clusters
    assert cluster.gpu.name == "A100-SXM4-40GB"
    assert cluster.inter_bytes_per_s == 6.25e9
    assert cluster.price_usd_per_gpu_h == 2.745


def test_azure_types_are_known_without_their_prefix():
    (cluster,) = asked(HardwareFlags(gpu=["ND96isr_H100_v5"])).clusters
    assert cluster.price_usd_per_gpu_h == 12.29


@pytest.mark.parametrize(
    "hardware",
    [HardwareFlags(gpu=["p5.48xlarge", "H100"]), HardwareFlags(gpu=["p5.48xlarge"], node_shape="DGX H100")],
)
def test_a_node_type_takes_no_other_gpu(hardware):
    with pytest.raises(InputError, match=r"^--gpu: 'p5\.48xlarge.*name one node type alone"):
        asked(hardware)


@pytest.mark.parametrize(
    ("hardware", "gpus"),
    [
        (HardwareFlags(gpu=["H100"], nodes=4), 32),
        (HardwareFlags(gpu=["A100-PCIe-80GB"], nodes=3, gpus_per_node=2), 6),
        (HardwareFlags(gpu=["Standard_NC96ads_A100_v4"], nodes=2), 8),
    ],
)
def test_nodes_are_so_many_gpus(hardware, gpus):
    assert asked(hardware).gpu_counts == (gpus,)


def test_nodes_of_unknown_size_are_refused():
    with pytest.raises(InputError, match=r"^--nodes: 2: give --gpus-per-node"):
        spelled_out({"nodes": 2})
    with pytest.raises(InputError, match=r"^--nodes: 2: give --nodes or --gpus, not both"):
        spelled_out({"nodes": 2, "resources.gpus": 16})


def test_too_many_nodes_are_named_after_their_flag():
    with pytest.raises(InputError, match=r"^--nodes: "):
        asked(HardwareFlags(gpu=["H100"], nodes=10**9))


@pytest.mark.parametrize(("typed", "method"), [("sft", "finetune"), ("Full", "finetune"), ("lora", "lora")])
def test_methods_have_other_names(typed, method):
    assert spelled_out({"workload.method": typed})["workload.method"] == method


def test_choices_are_read_in_any_case():
    job = JobFlags(
        model="gpt2", tokens="1B", precision="BF16", optimizer="AdamW", recompute=" Full", attention="Flash"
    )
    work = asked(HardwareFlags(gpu=["H100"]), job).workload
    assert (work.precision, work.optimizer) == ("bf16", "adamw")
    assert spelled_out({"objective": "COST"}) == {"objective": "cost"}


@pytest.mark.parametrize(("typed", "reference"), [("dpo", True), ("KTO", True), ("orpo", False)])
def test_training_on_preferences_is_finetuning_some_beside_a_reference_model(typed, reference):
    job = JobFlags(model="gpt2", tokens="1B", method=typed)
    work = asked(HardwareFlags(gpu=["H100"]), job).workload
    assert (work.method, work.reference_model) == ("finetune", reference)


def test_adapters_are_trained_on_preferences_with_the_flag():
    job = JobFlags(model="gpt2", tokens="1B", method="lora", reference_model=True)
    work = asked(HardwareFlags(gpu=["H100"]), job).workload
    assert (work.method, work.reference_model) == ("lora", True)


@pytest.mark.parametrize("typed", ["grpo", "ppo"])
def test_a_method_that_is_not_sized_is_refused_by_name(typed):
    with pytest.raises(InputError, match=f"^--method: '{typed}': reinforcement learning"):
        asked(HardwareFlags(gpu=["H100"]), JobFlags(model="gpt2", tokens="1B", method=typed))


@pytest.mark.parametrize(
    ("field", "typed", "meant"),
    [
        ("deadline.finishWithin", "3 days", "3d"),
        ("deadline.finishWithin", "72hrs", "72h"),
        ("deadline.finishWithin", "1 Week", "1w"),
        ("deadline.finishWithin", "tomorrow", "tomorrow"),
        ("workload.tokens", "1_000_000", "1000000"),
        ("workload.tokens", "15,000,000", "15000000"),
        ("workload.tokens", "1,5", "1,5"),
    ],
)
def test_words_and_separators_are_read_in_quantities(field, typed, meant):
    assert spelled_out({field: typed}) == {field: meant}


@pytest.mark.parametrize("typed", ["8xH100", "8*H100", "8 H100", "H100:8", "H100x8", "gpu:H100:8"])
def test_a_number_of_gpus_belongs_to_another_option(typed):
    with pytest.raises(InputError, match="name the type alone: --gpu H100; --gpus 8 fixes how many"):
        spelled_out({"resources.gpuTypes": [typed]})


def test_a_family_of_node_types_means_its_largest():
    found = spelled_out({"resources.gpuTypes": ["p5e"]})
    assert found == {"resources.gpuTypes": ["H200-SXM-141GB"], "resources.nodeShape": "p5e.48xlarge"}


@pytest.mark.parametrize(
    ("typed", "near"), [("a3-edgegpu-8g", "a3-megagpu-8g"), ("Standard_NC99ads_A100_v4", "NC96ads")]
)
def test_an_unknown_node_type_suggests_its_series(typed, near):
    with pytest.raises(InputError, match=f"did you mean .*{near}"):
        spelled_out({"resources.gpuTypes": [typed]})
