import pytest

from rightsizer_engine import units
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.published.hardware import cluster_of, link_bytes_per_s, nvlink_reach


def cluster(gpu: str, gpus: int = 8, **row: str) -> Cluster:
    return cluster_of({"gpu": gpu, **row}, lookup.gpu(gpu), gpus)


@pytest.mark.parametrize(
    ("cell", "per_node", "cards", "reach"),
    [
        ("NVLink (4x GH200 node)", 4, 4, 4),
        ("NVLink (NVSwitch)", 8, 8, 8),
        ("NVLink (NVL72 domain)", 4, 72, 72),
        ("18x 5th Gen NVLink, 14.4 TB/s aggregated bandwidth", 4, 72, 72),
        ("4-way NVIDIA NVLINK bridge", 4, 4, 4),
        ("NVLink bridge", 2, 2, 2),
        ("NVLink bridge", 8, 2, 1),
        ("PCIe (no NVLink)", 2, 2, 1),
        ("no NVLink", 2, 2, 1),
        ("Infinity Fabric Link", 8, 8, 8),
        ("None", 2, 2, 1),
        ("", 8, 8, None),
        ("8x 200 Gb/s RoCE", 8, 8, None),
    ],
)
def test_a_stated_link_joins_the_gpus_in_its_reach(
    cell: str, per_node: int, cards: int, reach: int | None
) -> None:
    assert nvlink_reach(cell, per_node, cards) == reach


@pytest.mark.parametrize(
    ("cell", "per_node", "gbit_s_per_gpu"),
    [
        ("4x NDR200", 4, 200),
        ("InfiniBand NDR200", 4, 200),
        ("InfiniBand NDR", 8, 400),
        ("NDR400", 8, 400),
        ("2x HDR100 per node", 4, 50),
        ("InfiniBand HDR", 4, 200),
        ("1x EDR", 4, 25),
        ("Slingshot 11", 4, 200),
        ("4x Slingshot-11", 8, 100),
        ("Slingshot 10", 4, 100),
        ("EFAv2", 8, 400),
        ("EFA v3", 8, 400),
        ("EFAv1", 8, 50),
        ("RoCE 100 Gb/s", 8, 100),
        ("4x100Gb RoCE per node", 8, 50),
        ("RoCE 400 Gb/s per GPU", 8, 400),
        ("8x400 Gb/s InfiniBand per node", 8, 400),
        ("GPUDirect-TCPXO (GCP)", 8, 200),
        ("2 x BCM57508 10Gb/25Gb/100Gb/200Gb Ethernet", 8, 50),
    ],
)
def test_a_network_has_the_rate_of_its_name(cell: str, per_node: int, gbit_s_per_gpu: float) -> None:
    assert link_bytes_per_s(cell, per_node) == pytest.approx(gbit_s_per_gpu / 8 * 1e9)


def test_four_superchips_of_a_node_are_joined_by_nvlink() -> None:
    found = cluster("GH200-96GB", gpus_per_node="4", interconnect_intra="NVLink (4x GH200 node)")
    assert (found.nvlink_domain_gpus, found.intra_bytes_per_s) == (4, 450e9)


def test_a_named_machine_has_its_nodes_network_and_power() -> None:
    found = cluster("GH200-96GB", interconnect_inter="InfiniBand NDR, JUPITER")
    assert (found.gpus_per_node, found.inter_bytes_per_s, found.gpu.power_w) == (4, 25e9, 680)


def test_a_stated_rate_wins_over_the_named_machine() -> None:
    found = cluster("GH200-96GB", interconnect_inter="JUPITER, 100 Gb/s per GPU")
    assert found.inter_bytes_per_s == 12.5e9


@pytest.mark.parametrize(
    ("row", "watts"), [({"gpu_power_w": "450"}, 450), ({}, 700)], ids=["stated", "the part's own"]
)
def test_a_row_may_state_the_power_limit(row: dict[str, str], watts: float) -> None:
    assert cluster("H100-SXM5-80GB", **row).gpu.power_w == watts


def test_bridged_cards_are_linked_only_where_the_node_has_two() -> None:
    two = cluster("RTX-3090-24GB", gpus_per_node="2", interconnect_intra="NVLink")
    four = cluster("RTX-3090-24GB", gpus_per_node="4", interconnect_intra="NVLink")
    assert (two.nvlink_domain_gpus, two.intra_bytes_per_s) == (2, 56.25e9)
    assert (four.nvlink_domain_gpus, four.intra_bytes_per_s) == (1, 5.4e9)


def test_a_card_without_nvlink_stays_on_pcie() -> None:
    found = cluster("L40S", gpus_per_node="4", interconnect_intra="NVLink")
    assert (found.nvlink_domain_gpus, found.intra_bytes_per_s) == (1, lookup.gpu("L40S").pcie_bytes_per_s)


@pytest.mark.parametrize(("name", "gbit_s"), units.NIC_GBIT_PER_S.items())
def test_a_card_has_the_rate_that_a_plan_gives_it(name: str, gbit_s: int) -> None:
    assert link_bytes_per_s(f"1x {name}", 1) == pytest.approx(gbit_s / 8 * 1e9)
