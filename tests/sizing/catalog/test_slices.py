"""MIG slices: their share of a GPU, and which there are."""

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.errors import UnsupportedError

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "multiprocessors", "memory_gib"),
    [
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", 16, 9.75),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me", 16, 9.75),
        ("NVIDIA-H100-80GB-HBM3-MIG-2g.20gb", 32, 19.62),
        ("NVIDIA-H100-80GB-HBM3-MIG-4g.40gb", 64, 39.5),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 14, 4.75),
    ],
)
def test_a_slice_is_what_nvidia_smi_lists(name, multiprocessors, memory_gib):
    part = lookup.gpu(name)
    assert part.streaming_multiprocessors == pytest.approx(multiprocessors, rel=0.1)
    assert part.memory_bytes / GIB == pytest.approx(memory_gib, rel=0.03)


def test_a_slice_has_its_shares_of_its_gpu_s_rates_and_no_link():
    whole, part = lookup.gpu("H100-SXM5-80GB"), lookup.gpu("H100-SXM5-80GB-MIG-2g.20gb")
    assert part.bf16_flop_per_s == whole.bf16_flop_per_s / 4
    assert part.memory_bytes_per_s == whole.memory_bytes_per_s / 4
    assert (part.nvlink_bytes_per_s, part.nvlink_domain_gpus) == (0.0, 1)
    assert lookup.gpu(part.name) == part


def test_the_largest_slice_has_all_of_the_memory():
    assert "8 of 8 of the memory" in lookup.gpu("H100-SXM5-80GB-MIG-7g.80gb").notes


@pytest.mark.parametrize("profile", ["1g.5gb", "9g.80gb", "0g.10gb", "4g.10gb", "1g.999gb", "mixed"])
def test_a_profile_that_the_gpu_lacks_is_refused(profile):
    with pytest.raises(UnsupportedError, match="has no such MIG slice"):
        lookup.gpu(f"H100-SXM5-80GB-MIG-{profile}")
