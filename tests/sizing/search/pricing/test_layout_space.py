import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Sharding
from rightsizer_engine.domain.workload import Recompute, Workload
from rightsizer_engine.search.pricing.layout_space import complexity, families, layouts

LLAMA = lookup.model("meta-llama/Llama-3.1-8B")
H100 = lookup.cluster("H100")


def _workload(sequence=8192, batch=512, **changes):
    return Workload(tokens=1e9, sequence_tokens=sequence, global_batch_sequences=batch, **changes)


def _families(model=LLAMA, name="megatron", pinned=None, workload=None):
    return families(model, workload or _workload(), H100, framework(name), pinned=pinned)


@settings(max_examples=30, deadline=None)
@given(
    nodes=st.integers(1, 64),
    batch=st.integers(1, 600),
    model=st.sampled_from(["meta-llama/Llama-3.1-8B", "mistralai/Mixtral-8x7B-v0.1"]),
)
def test_every_legal_layout_divides_what_it_splits(nodes, batch, model):
    architecture = lookup.model(model)
    some = _families(architecture, workload=_workload(batch=batch))
    gpus = np.full(len(some), 8 * nodes)
    layout, legal = layouts(some, gpus, _workload(batch=batch), batch_tolerance=0.05)
    layout = layout.take(np.flatnonzero(legal))
    np.testing.assert_array_equal(layout.dp * layout.tp * layout.pp * layout.cp, 8 * nodes)
    assert np.all(architecture.heads % layout.tp == 0)
    assert np.all(layout.pp * layout.vpp <= architecture.layers + 2)
    assert np.all((layout.dp * layout.cp * layout.tp) % layout.ep == 0)
    assert np.all((layout.vpp == 1) | (layout.micro_batches % layout.pp == 0))
    used = layout.dp * layout.micro_batch * layout.micro_batches
    assert np.all(np.abs(used / batch - 1) <= 0.05 + 1e-9)


def test_each_family_is_listed_once():
    some = _families(lookup.model("mistralai/Mixtral-8x7B-v0.1"))
    rows = np.stack([*some.axes.values()])
    assert np.unique(rows, axis=1).shape[1] == len(some)


def test_tensor_parallelism_stays_in_the_node_unless_pinned():
    assert _families().axes["tp"].max() == 8
    assert set(_families(pinned={"tp": 16}).axes["tp"]) == {16}


@pytest.mark.parametrize(
    ("name", "axis"),
    [("ddp", "tp"), ("ddp", "pp"), ("deepspeed", "pp"), ("accelerate", "ep")],
)
def test_a_framework_s_layouts_stay_within_its_abilities(name, axis):
    assert set(_families(name=name).axes[axis]) == {1}


def test_on_nodes_of_one_gpu_no_group_of_one_is_called_sharded():
    some = families(LLAMA, _workload(), lookup.cluster("H100", gpus_per_node=1), framework("torchtitan"))
    groups = some.axes["shard_group"][some.axes["sharding"] == Sharding.HSDP]
    assert set(groups) == {4, 16}


def test_ddp_shards_nothing():
    assert set(_families(name="ddp").axes["sharding"]) == {Sharding.NONE}


def test_a_short_sequence_is_not_cut():
    assert set(_families(workload=_workload(sequence=448)).axes["cp"]) == {1}


def test_a_pin_that_is_illegal_leaves_nothing():
    assert len(_families(pinned={"tp": 3})) == 0


def test_recompute_follows_the_workload():
    some = _families(workload=_workload(recompute=Recompute.FULL))
    assert set(some.axes["recompute"]) == {int(Recompute.FULL)}


def test_siblings_differ_in_recompute_alone_and_stand_together():
    some = _families()
    assert np.all(np.diff(some.sibling) >= 0)
    same = np.flatnonzero(np.diff(some.sibling) == 0)
    assert np.all(some.axes["recompute"][same + 1] > some.axes["recompute"][same])
    assert all(np.all(a[same] == a[same + 1]) for n, a in some.axes.items() if n != "recompute")


def test_llama3_405b_ran_a_layout_of_the_space():
    """arXiv:2407.21783, table 4: 16,384 GPUs, tp 8, cp 1, pp 16, dp 128, batch 2048 sequences of 8192."""
    pins = {"tp": 8, "cp": 1, "pp": 16, "micro_batch": 1}
    workload = _workload(batch=2048)
    some = _families(lookup.model("meta-llama/Llama-3.1-405B"), pinned=pins, workload=workload)
    layout, legal = layouts(some, np.full(len(some), 16384), workload)
    assert legal.any()
    assert set(layout.dp[legal]) == {128}


def test_fewer_kinds_of_parallelism_are_simpler():
    some = _families()
    layout, _ = layouts(some, np.full(len(some), 64), _workload(), batch_tolerance=1.0)
    score = complexity(layout)
    plain = (layout.tp == 1) & (layout.pp == 1) & (layout.cp == 1)
    assert score[plain].max() < score[(layout.tp > 1) & (layout.pp > 1)].min()


@pytest.mark.parametrize(
    ("name", "model", "pins"),
    [
        ("megatron-deepspeed", "bigscience/bloom", {"tp": 4, "pp": 12, "vpp": 1}),
        ("megatron-core", "bigscience/bloom", {"tp": 4, "pp": 12, "vpp": 1}),
        ("megatron-core", "meta-llama/Llama-3.1-8B", {"pp": 12, "vpp": 1}),
    ],
    ids=["70 layers on 12 stages", "counting both ends", "32 layers on 12 stages"],
)
def test_stages_may_be_uneven_where_the_framework_deals_so(name, model, pins):
    assert len(_families(lookup.model(model), name=name, pinned=pins))


def test_old_megatron_deals_layers_evenly():
    assert not len(_families(name="megatron-lm-2022", pinned={"pp": 12, "vpp": 1}))


def test_beside_a_reference_model_a_micro_batch_holds_pairs():
    work = _workload(batch=12, sequence=131_072, reference_model=True)
    assert set(_families(workload=work, pinned={"tp": 1, "pp": 1, "cp": 1}).axes["micro_batch"]) == {2}


@pytest.mark.parametrize(
    ("batch", "sizes"), [(512, {1, 2, 4, 8}), (768, {1, 2, 3, 4, 6, 8}), (9, {1, 2, 3, 4, 8})]
)
def test_a_micro_batch_of_three_needs_a_batch_that_it_divides(batch, sizes):
    some = _families(workload=_workload(batch=batch), pinned={"tp": 1, "pp": 1, "cp": 1})
    assert set(some.axes["micro_batch"]) == sizes
