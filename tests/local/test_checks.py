"""Checks of this machine: each gap is one line with its remedy."""

from dataclasses import replace

import pytest

from rightsizer_launch.findings import FindingStatus
from rightsizer_local import checks

GIB = 2**30
TORCH = checks.Torch(version="2.9.0", build="12.8", gpus=2, nccl="2.27.3", gloo=True)
SOUND = {
    "torch": TORCH,
    "torch_error": "",
    "gpus": ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
    "disk_bytes": 100 * GIB,
    "shared_bytes": 8 * GIB,
    "open_files": 65_536,
}


def on_machine(**changes):
    return list(checks.findings(checks.Facts(**SOUND | changes)))


def test_a_sound_machine_lacks_nothing():
    found = on_machine()
    assert {finding.status for finding in found} == {FindingStatus.OK}
    assert [finding.line for finding in found][:2] == [
        "ok      GPUs: 2 x H100-SXM5-80GB",
        "ok      torch: 2.9.0, built for 12.8",
    ]


@pytest.mark.parametrize(
    ("changes", "status", "line"),
    [
        (
            {"torch": None, "torch_error": "No module named 'torch'"},
            FindingStatus.MISSING,
            "pip install torch",
        ),
        ({"torch": replace(TORCH, build="", gpus=0)}, FindingStatus.MISSING, "sees none of 2 GPUs"),
        ({"torch": replace(TORCH, nccl="")}, FindingStatus.MISSING, "NCCL"),
        ({"torch": replace(TORCH, build="", gpus=0, gloo=False), "gpus": ()}, FindingStatus.MISSING, "gloo"),
        ({"gpus": ()}, FindingStatus.MISSING, "torch sees 2, NVML none"),
        ({"gpus": ("NVIDIA H100 80GB HBM3", "Tesla T4")}, FindingStatus.MISSING, "several types"),
        ({"gpus": ("Voodoo 2",)}, FindingStatus.MISSING, "not in the catalog"),
        ({"disk_bytes": GIB}, FindingStatus.NOTE, "disk here: 1GiB, less than 20GiB"),
        ({"shared_bytes": 64 * 2**20}, FindingStatus.NOTE, "shm: 64MiB"),
        ({"open_files": 1024}, FindingStatus.NOTE, "ulimit -n 4096"),
    ],
)
def test_a_gap_of_the_machine_is_one_line_with_its_remedy(changes, status, line):
    gaps = [finding for finding in on_machine(**changes) if finding.status is not FindingStatus.OK]
    assert gaps[-1].status is status
    assert line in gaps[-1].line
    assert gaps[-1].remedy
