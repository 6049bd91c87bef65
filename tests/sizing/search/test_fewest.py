import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.workload import Method, Workload
from rightsizer_engine.search import fewest as fewest_module
from rightsizer_engine.search.fewest import SearchResult, fewest, rows_at
from rightsizer_engine.search.gpu_counts import counts, pairs, thin
from rightsizer_engine.search.memory_fit import fitting
from rightsizer_engine.search.pricing.context import families_context
from rightsizer_engine.search.pricing.layout_space import families, layouts
from rightsizer_engine.search.pricing.rows import price_pairs
from rightsizer_engine.search.selection import best, meets
from rightsizer_engine.search.types import Request

DAY = 86400.0


def _request(model="meta-llama/Llama-3.1-8B", *, days=8.0, name="megatron", batch=256, gpu="H100", **changes):
    workload = Workload(
        tokens=60e9,
        sequence_tokens=4096,
        global_batch_sequences=batch,
        method=changes.pop("method", Method.PRETRAIN),
    )
    return Request(
        architecture=lookup.model(model),
        workload=workload,
        framework=framework(name),
        clusters=(lookup.cluster(gpu),),
        deadline_s=days * DAY,
        max_gpus=changes.pop("max_gpus", 128),
        **changes,
    )


def _ground(request):
    cluster = request.clusters[0]
    some = families(request.architecture, request.workload, cluster, request.framework)
    return families_context(request, cluster, some), counts(request, cluster)


CASES = {
    "dense": _request(),
    "tight": _request(days=3.0, batch=1024, max_gpus=256),
    "fsdp": _request(name="torchtitan"),
    "experts": _request("mistralai/Mixtral-8x7B-v0.1", days=20.0),
    "small cards": _request(gpu="A100-SXM4-40GB", days=20.0),
    "odd batch": _request(batch=250),
    "zero": _request(name="deepspeed", days=15.0),
    "hopeless": _request(days=0.1),
    "nodes of four": _request(gpu="GB200", days=2.0),
}


def fewest_by_brute_force(context, allowed):
    """The same result as `fewest`, by pricing every family on every count."""
    everything = np.arange(len(context.families))
    evaluated = 0
    for gpus in allowed:
        rows = rows_at(context, int(gpus), everything)
        evaluated += len(rows)
        index = best(rows, meets(rows, context.request))
        if index is not None:
            return SearchResult(row=rows.take(np.asarray([index])), at_count=rows, evaluated=evaluated)
    return None


@pytest.mark.parametrize("request_", CASES.values(), ids=CASES)
def test_nothing_is_pruned_that_could_be_the_best(request_):
    some, allowed = _ground(request_)
    alive, _ = fitting(some, int(allowed[-1]))
    found, _ = fewest(some, allowed, alive)
    truth = fewest_by_brute_force(some, allowed)
    assert (found is None) == (truth is None)
    if found is not None and truth is not None:
        assert found.row.gpus[0] == truth.row.gpus[0]
        assert found.row.finish_s[0] == pytest.approx(truth.row.finish_s[0], rel=1e-9)


def test_only_pairs_that_divide_the_batch_are_priced_and_each_once():
    some, allowed = _ground(_request(max_gpus=1024))
    alive, _ = fitting(some, int(allowed[-1]))
    blocks = list(fewest_module._blocks(some, alive, np.zeros(alive.shape), allowed))
    family, gpus = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    chosen, counts = pairs(some.families.unit[alive], np.zeros(alive.shape), allowed)
    _, legal = layouts(some.families.take(alive[chosen]), counts, some.request.workload, batch_tolerance=0.05)
    wanted = set(zip(alive[chosen][legal].tolist(), counts[legal].tolist(), strict=True))
    assert wanted <= set(zip(family.tolist(), gpus.tolist(), strict=True))
    assert len(set(zip(family.tolist(), gpus.tolist(), strict=True))) == gpus.size < counts.size
    assert (np.diff(gpus) >= 0).all()


@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "mistralai/Mixtral-8x7B-v0.1"])
def test_a_family_that_never_fits_alone_fits_nowhere(model):
    some, allowed = _ground(_request(model, gpu="A100-SXM4-40GB"))
    alive, _ = fitting(some, int(allowed[-1]))
    dead = np.setdiff1d(np.arange(len(some.families)), alive)
    chosen, gpus = pairs(some.families.unit[dead], np.zeros(dead.shape), allowed)
    assert len(price_pairs(some, dead[chosen], gpus)) == 0


def test_counts_are_divisors_of_a_node_then_whole_nodes():
    request = _request(max_gpus=33, min_gpus=2)
    assert counts(request, request.clusters[0]).tolist() == [2, 4, 8, 16, 24, 32]


def test_spares_are_taken_from_the_allowed_gpus():
    request = _request(max_gpus=32, spare_nodes=1)
    assert counts(request, request.clusters[0]).tolist()[-1] == 24


def test_requested_counts_are_the_only_ones():
    request = _request(max_gpus=64, gpu_counts=(16, 40, 41))
    assert counts(request, request.clusters[0]).tolist() == [16, 40]


def test_thinning_keeps_both_ends():
    allowed = np.arange(8, 16385, 8)
    few = thin(allowed, 20)
    assert few[0] == 8
    assert few[-1] == 16384
    assert few.size < 40


def test_pairs_divide_and_are_needed_and_come_by_count():
    unit, need = np.array([8, 6, 8, 1]), np.array([0.0, 0.0, 20.0, np.inf])
    family, gpus = pairs(unit, need, np.array([8, 12, 24]))
    assert list(zip(family.tolist(), gpus.tolist(), strict=True)) == [
        (0, 8),
        (1, 12),
        (0, 24),
        (1, 24),
        (2, 24),
    ]


def test_a_plan_takes_one_mig_slice():
    request = _request(gpu="H100-SXM5-80GB-MIG-1g.10gb")
    assert counts(request, request.clusters[0]).tolist() == [1]
    assert counts(request, request.clusters[0], limit=64).tolist() == [1]
