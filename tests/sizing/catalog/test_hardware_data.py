import csv
from importlib import resources
from statistics import median

import pytest

from rightsizer_engine.catalog import lookup

FILES = ("gpus.csv", "links.csv", "models.csv", "nodes.csv")


def rows(file: str) -> list[dict[str, str]]:
    text = resources.files("rightsizer_engine").joinpath("data", file).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


def test_every_gpu_has_positive_figures_and_a_source() -> None:
    for part in lookup.gpus():
        assert part.fp16_flop_per_s > 0, part.name
        assert part.fp32_flop_per_s > 0, part.name
        assert part.bf16_flop_per_s > 0 or part.architecture in ("pascal", "volta", "turing"), part.name
        assert 4e9 < part.memory_bytes < 1e12, part.name
        assert part.memory_bytes_per_s > 1e11, part.name
        assert part.pcie_bytes_per_s > 0, part.name
        assert part.tdp_w > 0, part.name
        assert part.streaming_multiprocessors > 0, part.name
        assert part.inter_bytes_per_s > 0, part.name
        assert part.source, part.name
        assert part.inter_source, part.name
        assert "peaks: " in part.sources, part.name


def test_lower_precision_is_never_slower() -> None:
    for part in lookup.gpus():
        assert part.fp32_flop_per_s <= part.fp16_flop_per_s, part.name
        assert part.fp8_flop_per_s == 0 or part.fp8_flop_per_s >= part.fp16_flop_per_s, part.name
        assert part.fp4_flop_per_s == 0 or part.fp4_flop_per_s >= part.fp8_flop_per_s, part.name


def test_a_fast_link_beats_the_bus_and_has_a_reach() -> None:
    linked = [part for part in lookup.gpus() if part.nvlink_domain_gpus > 1]
    assert linked
    for part in linked:
        assert part.nvlink_bytes_per_s > part.pcie_bytes_per_s, part.name


def test_a_price_is_the_median_of_the_listed_ones() -> None:
    priced = [row for row in rows("gpus.csv") if row["price_source"]]
    assert priced
    for row in priced:
        listed = [float(part.split("=")[0]) for part in row["price_source"].split("; ")]
        assert float(row["price_usd_per_gpu_h"]) == pytest.approx(median(listed), abs=0.001), row["name"]


def test_every_node_shape_holds_known_gpus_and_has_a_source() -> None:
    assert lookup.nodes()
    for item in lookup.nodes():
        assert lookup.gpu(item.gpu).name == item.gpu, item.name
        assert item.gpus > 0, item.name
        assert item.source, item.name
        assert item.price_usd_per_gpu_h is None or item.price_date, item.name


@pytest.mark.parametrize("file", FILES)
def test_every_row_of_the_data_has_a_source_and_a_name_of_its_own(file: str) -> None:
    table = rows(file)
    assert all(row["source"] for row in table)
    key = [(row.get("provider"), row["name"]) for row in table]
    assert len(key) == len(set(key))
