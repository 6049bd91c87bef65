import csv
from importlib import resources
from statistics import median

import pytest

from rightsizer import catalog
from rightsizer.hardware import Gpu, Link, Node

FILES = ("gpus.csv", "links.csv", "models.csv", "nodes.csv")


def rows(file: str) -> list[dict[str, str]]:
    text = resources.files("rightsizer").joinpath("data", file).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize("part", catalog.gpus(), ids=lambda part: part.name)
def test_every_gpu_has_positive_figures_and_a_source(part: Gpu) -> None:
    assert part.fp16_flop_per_s > 0
    assert part.fp32_flop_per_s > 0
    assert part.bf16_flop_per_s > 0 or part.architecture in ("volta", "turing")
    assert 4e9 < part.memory_bytes < 1e12
    assert part.memory_bytes_per_s > 1e11
    assert part.pcie_bytes_per_s > 0
    assert part.tdp_w > 0
    assert part.streaming_multiprocessors > 0
    assert part.inter_bytes_per_s > 0
    assert part.source
    assert part.inter_source
    assert "peaks: " in part.sources


@pytest.mark.parametrize("part", catalog.gpus(), ids=lambda part: part.name)
def test_lower_precision_is_never_slower(part: Gpu) -> None:
    assert part.fp32_flop_per_s <= part.fp16_flop_per_s
    assert part.fp8_flop_per_s == 0 or part.fp8_flop_per_s >= part.fp16_flop_per_s
    assert part.fp4_flop_per_s == 0 or part.fp4_flop_per_s >= part.fp8_flop_per_s


@pytest.mark.parametrize("part", catalog.gpus(), ids=lambda part: part.name)
def test_a_fast_link_beats_the_bus_and_has_a_reach(part: Gpu) -> None:
    if part.nvlink_domain_gpus > 1:
        assert part.nvlink_bytes_per_s > part.pcie_bytes_per_s


@pytest.mark.parametrize("row", [r for r in rows("gpus.csv") if r["price_source"]], ids=lambda r: r["name"])
def test_a_price_is_the_median_of_the_listed_ones(row: dict[str, str]) -> None:
    listed = [float(part.split("=")[0]) for part in row["price_source"].split("; ")]
    assert float(row["price_usd_per_gpu_h"]) == pytest.approx(median(listed), abs=0.001)


@pytest.mark.parametrize("item", catalog.links(), ids=lambda item: item.name)
def test_every_link_has_a_rate_and_a_source(item: Link) -> None:
    assert item.bytes_per_s > 0
    assert item.source
    assert item.achievable_fraction is None or 0 < item.achievable_fraction <= 1


@pytest.mark.parametrize("item", catalog.nodes(), ids=lambda item: f"{item.provider} {item.name}")
def test_every_node_shape_holds_known_gpus_and_has_a_source(item: Node) -> None:
    assert catalog.gpu(item.gpu).name == item.gpu
    assert item.gpus > 0
    assert item.source
    assert item.price_usd_per_gpu_h is None or item.price_date


@pytest.mark.parametrize("file", FILES)
def test_every_row_of_the_data_has_a_source_and_a_name_of_its_own(file: str) -> None:
    table = rows(file)
    assert all(row["source"] for row in table)
    key = [(row.get("provider"), row["name"]) for row in table]
    assert len(key) == len(set(key))
