import subprocess
import sys

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.errors import InputError, UnknownNameError, UnsupportedError

PUBLISHED = {
    "A100 (paper: Ampere, memory not stated)": "A100-SXM4-80GB",
    "A100-40GB": "A100-SXM4-40GB",
    "A100-80GB": "A100-SXM4-80GB",
    "A100-SXM4-40GB": "A100-SXM4-40GB",
    "A100-SXM4-80GB": "A100-SXM4-80GB",
    "A10G-24GB": "A10G",
    "A800-80GB": "A800-SXM4-80GB",
    "B200": "B200-SXM-180GB",
    "B300": "B300-SXM-288GB",
    "GB200": "GB200",
    "GB300": "GB300",
    "H100": "H100-SXM5-80GB",
    "H100-SXM-96GB-HBM2e-500W": "H100-SXM-96GB-HBM2e",
    "H100-SXM5-80GB": "H100-SXM5-80GB",
    "H200": "H200-SXM-141GB",
    "H200-NVL-141GB": "H200-NVL-141GB",
    "H200-SXM-141GB": "H200-SXM-141GB",
    "L40S": "L40S",
    "MI300X": "MI300X",
    "MI325X": "MI325X",
    "RTX-3090-24GB": "RTX 3090",
    "RTX-4090-24GB": "RTX 4090",
    "RTX-6000-Ada-48GB": "RTX 6000 Ada",
    "RTX-A5000-24GB": "RTX A5000",
    "RTX-A6000-48GB": "RTX A6000",
    "V100-SXM2-16GB": "V100-SXM2-16GB",
    "V100-SXM3-32GB (DGX-2)": "V100-SXM2-32GB",
}
SPELT = {
    "NVIDIA H100 80GB HBM3": "H100-SXM5-80GB",  # nvidia-smi
    "NVIDIA-H100-80GB-HBM3": "H100-SXM5-80GB",  # GPU Feature Discovery
    "nvidia_h100_80gb_hbm3": "H100-SXM5-80GB",  # Slurm autodetect
    "gpu:h100": "H100-SXM5-80GB",  # Slurm --gres
    "gres/gpu:a100": "A100-SXM4-80GB",  # Slurm TRES
    "h100-80gib": "H100-SXM5-80GB",
    "H100 PCIe": "H100-PCIe-80GB",
    "H100-SXM5": "H100-SXM5-80GB",
    "NVIDIA A100 80GB PCIe": "A100-PCIe-80GB",
    "NVIDIA A100-SXM4-40GB": "A100-SXM4-40GB",
    "Tesla T4": "T4",
    "Tesla V100-SXM2-32GB": "V100-SXM2-32GB",
    "V100-32GB": "V100-SXM2-32GB",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "rtx_4090": "RTX 4090",
    "Quadro RTX 6000": "Quadro RTX 6000",
    "RTX 6000": "RTX 6000 Ada",
    "AMD Instinct MI300X OAM": "MI300X",
    "MI250X": "MI250X-GCD",
    "nvidia-h100-80gb": "H100-SXM5-80GB",  # GKE accelerator label
    "NVIDIA GeForce RTX 3090 Ti": "RTX 3090 Ti",
    "RTX-4070Ti-SUPER": "RTX 4070 Ti SUPER",
    "RTX 4070 Ti SUPER": "RTX 4070 Ti SUPER",
    "rtx4080super": "RTX 4080 SUPER",
    "RTX 4060 Ti": "RTX 4060 Ti 16GB",
    "NVIDIA GeForce RTX 5080": "RTX 5080",
    "NVIDIA RTX 4000 Ada Generation": "RTX 4000 Ada",
    "RTX-5000-Ada-32GB": "RTX 5000 Ada",
    "RTX A4000": "RTX A4000",
    "NVIDIA RTX PRO 5000 Blackwell": "RTX PRO 5000 Blackwell",
    "NVIDIA TITAN RTX": "TITAN RTX",
    "RTX 2080 Ti": "RTX 2080 Ti",
    "Tesla P100-PCIE-16GB": "P100-PCIe-16GB",
    "P100": "P100-PCIe-16GB",
    "NVIDIA A30": "A30",
    "A16": "A16",
    "NVIDIA GB10": "GB10",
    "DGX Spark": "GB10",
    "A100-64GB": "A100-SXM-64GB",
    "AMD Instinct MI210": "MI210",
    "MI250": "MI250-GCD",
    "MI300A": "MI300A",
    "AMD_Instinct_MI308X_OAM": "MI308X",
    "NVIDIA H800": "H800-SXM5-80GB",
    "H800-SXM-80GB": "H800-SXM5-80GB",
}


@pytest.mark.parametrize(("name", "expected"), [*PUBLISHED.items(), *SPELT.items()])
def test_a_gpu_answers_to_the_names_that_people_and_tools_use(name: str, expected: str) -> None:
    assert lookup.gpu(name).name == expected


def test_every_gpu_answers_to_its_own_name() -> None:
    for part in lookup.gpus():
        assert lookup.gpu(part.name) is part, part.name
        assert lookup.gpu(part.name.upper()) is part, part.name


@pytest.mark.parametrize("name", ["A100", "B200", "H100", "H200", "V100"])
def test_a_common_name_as_written_resolves_like_the_index(name: str) -> None:
    assert lookup.gpu(name) is lookup.gpu(name.lower())


def test_every_gpu_is_listed_once() -> None:
    names = [part.name for part in lookup.gpus()]
    assert len(names) == len(set(names)) > 45


def test_an_ambiguous_name_lists_its_meanings() -> None:
    with pytest.raises(UnknownNameError, match="ambiguous") as caught:
        lookup.gpu("A100-SXM4")
    assert caught.value.candidates == ("A100-SXM4-40GB", "A100-SXM4-80GB")


@pytest.mark.parametrize(
    ("name", "near"), [("H10O", "H100-SXM5-80GB"), ("RTX4900", "RTX 4090"), ("L40SS", "L40S")]
)
def test_a_near_miss_suggests_the_nearest_name(name: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        lookup.gpu(name)
    assert near in caught.value.candidates


@pytest.mark.parametrize("name", ["", "potato", "x" * 10_000, "\x00", "H100; rm -rf /"])
def test_an_unknown_name_points_to_the_list(name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"rightsizer gpus|did you mean"):
        lookup.gpu(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("TPU v4", "TPU"),
        ("TPU-trillium", "TPU"),
        ("tpu-v5p-slice", "TPU"),
        ("v5e", "TPU"),
        ("trn2", "Trainium"),
        ("Gaudi2", "Gaudi"),
        ("NVIDIA Jetson AGX Orin", "Jetson"),
        ("NVIDIA-L4-MIG-1g.5gb", "slice"),
        ("NVIDIA-A100-SXM4-40GB-MIG-9g.5gb", "slice"),
        ("NVIDIA-A100-SXM4-40GB-MIG-4g.5gb", "slice"),
        ("NVIDIA-A100-SXM4-40GB-MIG-mixed", "slice"),
        ("NVIDIA-L4-SHARED", "share"),
    ],
)
def test_a_partial_gpu_is_refused_by_name(name: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        lookup.gpu(name)


@pytest.mark.parametrize(
    ("name", "domain", "intra_gb_s", "inter_gb_s"),
    [
        ("V100", 8, 150, 1.56),
        ("A100", 8, 300, 25),
        ("A800", 8, 200, 25),
        ("H100", 8, 450, 50),
        ("B200", 8, 900, 50),
        ("B300", 8, 900, 100),
        ("GB200", 72, 900, 50),
        ("GB300", 72, 900, 100),
        ("MI300X", 8, 448, 50),
        ("A100-PCIe-80GB", 1, 31.5, 6.25),
        ("L40S", 1, 31.5, 6.25),
        ("RTX 3090", 1, 5.4, 6.25),
        ("RTX 4090", 1, 31.5, 6.25),
        ("GH200", 4, 450, 25),
    ],
)
def test_a_typical_node_has_its_fast_link_and_its_network(
    name: str, domain: int, intra_gb_s: float, inter_gb_s: float
) -> None:
    built = lookup.cluster(name)
    assert built.nvlink_domain_gpus == domain
    assert built.intra_bytes_per_s == pytest.approx(intra_gb_s * 1e9)
    assert built.inter_bytes_per_s == pytest.approx(inter_gb_s * 1e9)
    assert not built.inter_known
    assert built.inter_link.startswith("typical: ")


@pytest.mark.parametrize(
    ("name", "gpus", "domain"),
    [
        ("H100", 4, 4),
        ("H100", 1, 1),
        ("V100", 16, 16),
        ("H100-NVL-94GB", 2, 2),
        ("H100-NVL-94GB", 8, 1),
        ("H200-NVL-141GB", 4, 4),
        ("GB200", 1, 72),
        ("GH200", 1, 1),
        ("GH200", 2, 2),
        ("GH200", 8, 1),
        ("L40S", 4, 1),
    ],
)
def test_the_fast_link_joins_what_the_node_holds(name: str, gpus: int, domain: int) -> None:
    assert lookup.cluster(name, gpus_per_node=gpus).nvlink_domain_gpus == domain


def test_a_node_shape_sets_network_and_price() -> None:
    built = lookup.cluster("A100", nodes_shape="p4de.24xlarge")
    assert built.inter_known
    assert built.inter_bytes_per_s == pytest.approx(6.25e9)
    assert built.price_usd_per_gpu_h == pytest.approx(3.431)


def test_a_machine_sets_its_power_limit() -> None:
    jupiter = lookup.cluster("GH200", nodes_shape="JUPITER")
    assert (jupiter.gpu.power_w, lookup.gpu("GH200").power_w) == (680, 900)
    assert jupiter.inter_bytes_per_s == pytest.approx(25e9)


@pytest.mark.parametrize("watts", [50.0, 2000.0])
def test_a_power_limit_that_no_driver_accepts_is_refused(watts: float) -> None:
    with pytest.raises(InputError, match="900 W"):
        lookup.cluster("GH200", power_w=watts)


@pytest.mark.parametrize(
    ("name", "gpus", "rate", "domain"),
    [
        ("H100", 8, 31.5e9, 1),  # PCIe5 x8 instead of NVLink
        ("H100", 8, 450e9, 8),
        ("RTX 3090", 2, 56.25e9, 2),  # a bridge
        ("RTX 3090", 4, 56.25e9, 1),
        ("RTX 4090", 4, 15.75e9, 1),
    ],
)
def test_a_stated_link_is_nvlink_only_where_it_is_as_fast(
    name: str, gpus: int, rate: float, domain: int
) -> None:
    built = lookup.cluster(name, gpus_per_node=gpus, intra_bytes_per_s=rate)
    assert (built.nvlink_domain_gpus, built.intra_bytes_per_s) == (domain, rate)


def test_a_text_names_a_machine_by_its_words() -> None:
    assert lookup.system("InfiniBand NDR, JUPITER", "GH200-96GB") is not None
    assert lookup.system("NDR in Eosland", "H100-SXM5-80GB") is None
    assert lookup.system("InfiniBand NDR, JUPITER", "H100-SXM5-80GB") is None


def test_stated_values_override_the_shape() -> None:
    built = lookup.cluster("H100", nodes_shape="p5.48xlarge", inter_bytes_per_s=1e9, price=2.0, max_gpus=64)
    assert (built.inter_bytes_per_s, built.price_usd_per_gpu_h, built.max_gpus) == (1e9, 2.0, 64)
    assert built.inter_link == "as given"


def test_a_shape_of_other_gpus_is_refused() -> None:
    with pytest.raises(InputError, match="A100-SXM4-80GB"):
        lookup.cluster("H100", nodes_shape="p4de.24xlarge")


def test_looking_up_imports_nothing_heavy() -> None:
    code = (
        "import sys; from rightsizer_engine.catalog import lookup;"
        "lookup.gpu('H100'); lookup.model('Llama 3.1 8B');"
        "assert not {'pandas', 'scipy', 'pydantic', 'torch', 'zipfile'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
