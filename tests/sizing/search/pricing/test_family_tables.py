import gc
import sys
import threading
import weakref

import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.workload import Method, Workload
from rightsizer_engine.estimate.prediction import fit, throughput
from rightsizer_engine.search.pricing.context import families_context, search_context
from rightsizer_engine.search.pricing.family_tables import _LazyTable
from rightsizer_engine.search.pricing.layout_space import families, layouts
from rightsizer_engine.search.types import Request

JOBS = {
    "dense": ("meta-llama/Llama-3.1-8B", "megatron", Method.PRETRAIN),
    "experts": ("mistralai/Mixtral-8x7B-v0.1", "megatron", Method.PRETRAIN),
    "sharded layers": ("meta-llama/Llama-3.1-8B", "deepspeed", Method.PRETRAIN),
    "sharded groups": ("meta-llama/Llama-3.1-8B", "torchtitan", Method.PRETRAIN),
    "stages": ("bigscience/bloom", "megatron", Method.PRETRAIN),
    "adapters": ("meta-llama/Llama-3.1-8B", "trl", Method.LORA),
}


def _rows(model, name, method):
    """Every legal layout on a few counts of GPUs."""
    workload = Workload(tokens=60e9, sequence_tokens=4096, global_batch_sequences=256, method=method)
    request = Request(
        architecture=lookup.model(model),
        workload=workload,
        framework=framework(name),
        clusters=(lookup.cluster("H100"),),
        deadline_s=1e6,
    )
    some = families(request.architecture, workload, request.clusters[0], request.framework)
    family, gpus = np.tile(np.arange(len(some)), 3), np.repeat([8, 48, 256], len(some))
    columns, legal = layouts(some.take(family), gpus, workload, batch_tolerance=0.1)
    chosen = np.flatnonzero(legal)
    return families_context(request, request.clusters[0], some), family[chosen], columns.take(chosen)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_family_priced_once_is_as_fast_as_each_of_its_layouts(job):
    some, family, columns = _rows(*job)
    plain, quick = throughput(some.cases(columns)), some.tables.throughput(family, columns)
    np.testing.assert_allclose(quick.step_s, plain.step_s, rtol=1e-12)
    np.testing.assert_allclose(quick.sigma, np.broadcast_to(plain.sigma, family.shape), rtol=1e-12)
    np.testing.assert_array_equal(quick.tokens_per_step, plain.tokens_per_step)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_family_priced_once_takes_the_memory_of_each_of_its_layouts(job):
    some, family, columns = _rows(*job)
    plain, quick = fit(some.cases(columns)), some.tables.fit(family, columns)
    np.testing.assert_allclose(quick.device_bytes, plain.device_bytes, rtol=1e-12)
    np.testing.assert_array_equal(quick.fits, plain.fits)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_no_layout_takes_less_than_its_family_s_states(job):
    some, family, columns = _rows(*job)
    taken = fit(some.cases(columns)).memory.allocated_bytes
    assert np.all(some.tables.states_bytes()[family] <= taken * (1 + 1e-12))


def test_gpus_of_another_type_in_nodes_of_the_same_size_share_what_stages_hold():
    workload = Workload(tokens=60e9, sequence_tokens=4096, global_batch_sequences=256)
    request = Request(
        architecture=lookup.model("meta-llama/Llama-3.1-8B"),
        workload=workload,
        framework=framework("megatron"),
        clusters=tuple(lookup.cluster(gpu) for gpu in ("H100", "A100-SXM4-40GB", "GB200")),
    )
    first, same, other = (search_context(request, cluster) for cluster in request.clusters)
    assert first.families is same.families is not other.families
    alone = families_context(request, same.cluster, same.families)
    every = np.arange(len(same.families))
    columns, _ = layouts(same.families, same.families.unit, workload)
    np.testing.assert_array_equal(
        same.tables.fit(every, columns).device_bytes, alone.tables.fit(every, columns).device_bytes
    )


@pytest.fixture
def hasty():
    """Threads that take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_threads_that_fill_one_table_lose_none_of_each_other_s_families(hasty):
    families_ = np.arange(1, 9)
    for _ in range(60):  # without a lock a third of them were wrong
        table, gate = _LazyTable(9), threading.Barrier(8)
        itself = lambda index: {"itself": index.astype(float)}
        table.fill(np.zeros(1, dtype=int), itself)

        def fill(family, table=table, gate=gate, itself=itself):
            gate.wait()
            table.fill(np.array([family]), itself)

        threads = [threading.Thread(target=fill, args=(family,)) for family in families_]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(table.rows(families_)["itself"], families_)


@pytest.fixture
def no_collector():
    """Switch the garbage collector off: only reference counts free memory."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_evicted_tables_are_freed_at_once(no_collector, job):
    some, family, columns = _rows(*job)
    some.tables.throughput(family, columns)
    some.tables.fit(family, columns)
    evicted = [weakref.ref(some.tables), weakref.ref(some.tables._stages)]
    del some
    assert [table() for table in evicted] == [None, None]
