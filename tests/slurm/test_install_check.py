"""The findings on GPUs, and the effect of the lines that they suggest."""

import json
from pathlib import Path

import pytest

from rightsizer_slurm.cluster import config
from rightsizer_slurm.cluster.slurm_cli import Slurm
from rightsizer_slurm.install_check import FindingStatus, check

PARTITION = "PartitionName=main Default=YES MaxNodes=UNLIMITED MaxTime=1-00:00:00 Nodes={} State=UP\n"
NODE = "NodeName={} CPUTot=64 Gres={} GresUsed= State=IDLE ActiveFeatures={}\n"


@pytest.fixture
def slurm(tmp_path: Path):
    """Slurm's commands of a site with nodes of the given GRES and features."""

    def made(*gres: str, features: str = "(null)") -> Slurm:
        names = [f"n{i}" for i in range(len(gres))]
        texts = {
            "config": f"SLURM_CONF = {tmp_path}/slurm.conf\nSlurmUser = slurm(64030)\n",
            "partition": PARTITION.format(",".join(names)),
            "reservation": "No reservations in the system\n",
            "node": "".join(NODE.format(n, g, features) for n, g in zip(names, gres, strict=True)),
            "jobs": json.dumps({"jobs": [], "meta": {}, "errors": []}),
        }
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        for command, text in {
            "scontrol": f'for each in "$@"; do what=$each; done; cat {tmp_path}/$what',
            "squeue": f"cat {tmp_path}/jobs",
            "sinfo": "echo slurm-wlm 22.05.8",
        }.items():
            (tmp_path / command).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / command).chmod(0o755)
        return Slurm(folder=tmp_path)

    return made


def gpus(slurm: Slurm):
    """The findings about GPUs."""
    return [each for each in check(slurm) if each.text.startswith("gpu") or "has GPUs" in each.text]


@pytest.mark.parametrize(
    ("node", "site", "status", "text"),
    [
        (("gpu:h100:8", ""), "", FindingStatus.OK, "gpu:h100 is H100-SXM5-80GB"),
        (("gpu:8", "a100"), "", FindingStatus.OK, "gpu without a type is A100-SXM4-80GB"),
        (("gpu:8", ""), "", FindingStatus.MISSING, "gpu without a type is not a GPU of the catalog"),
        (("gpu:weird:8", ""), "", FindingStatus.MISSING, "gpu:weird is not a GPU of the catalog"),
        (("gpu:1g.10gb:7", ""), "", FindingStatus.MISSING, "gpu:1g.10gb is not a GPU of the catalog"),
        (("gpu:weird:8", ""), "[gpus]\nweird = H200", FindingStatus.OK, "from [gpus] in rightsizer.conf"),
        (("gpu:weird:8", ""), "[gpus]\nweird = none", FindingStatus.NOTE, "is not for training"),
        (("(null)", ""), "", FindingStatus.MISSING, "no node has GPUs in Slurm"),
    ],
    ids=["known", "by feature", "untyped", "unknown", "slice", "mapped", "none", "no GPUs"],
)
def test_each_gres_type_has_one_finding(slurm, node, site, status, text):
    gres, features = node
    cluster = slurm(gres, features=features or "(null)")
    (cluster.folder / "rightsizer.conf").write_text(site)
    (finding,) = gpus(cluster)
    assert (finding.status, text in finding.text) == (status, True), finding.summary


def test_the_suggested_lines_leave_no_type_unknown(slurm, tmp_path):
    cluster = slurm("gpu:weird:8", "gpu:1g.10gb:7", "gpu:4", "gpu:h100:8")
    missing = [each for each in gpus(cluster) if each.status is FindingStatus.MISSING]
    lines = [line for each in missing for line in each.lines]
    assert [line.split(" ")[0] for line in lines] == ["[gpus]", "untyped", "1g.10gb", "weird"]
    assert {each.file for each in missing if each.lines} == {"rightsizer.conf"}
    (tmp_path / "rightsizer.conf").write_text("\n".join(lines))
    assert set(config.read(tmp_path / "rightsizer.conf").gpus) == {"untyped", "1g.10gb", "weird"}
    assert [each.status for each in gpus(cluster)] == [
        FindingStatus.NOTE,
        FindingStatus.NOTE,
        FindingStatus.OK,
        FindingStatus.NOTE,
    ]


def test_a_file_with_a_gpus_section_gets_no_second_heading(slurm, tmp_path):
    (tmp_path / "rightsizer.conf").write_text("[gpus]\nodd = none\n")
    (finding,) = (
        each for each in gpus(slurm("gpu:odd:8", "gpu:weird:8")) if each.status is FindingStatus.MISSING
    )
    assert finding.lines[0] == "weird = none    # or a name of `rightsizer gpus`"


@pytest.mark.parametrize(
    ("response", "status", "text"),
    [
        (
            "RIGHTSIZER 2 OK\nsay=1 x 8 h100\nEND\n",
            FindingStatus.OK,
            "answers at /run/s: 1 x 8 h100",
        ),
        ("RIGHTSIZER 9 OK\nEND\n", FindingStatus.MISSING, "no daemon of this version"),
        ("RIGHTSIZER 1 KEEP\nsay=x\nEND\n", FindingStatus.MISSING, "no daemon of this version"),
        (PermissionError(13, "Permission denied"), FindingStatus.NOTE, "run this check as root"),
        (ConnectionRefusedError(111, "Connection refused"), FindingStatus.MISSING, "(Connection refused)"),
        (TimeoutError("timed out"), FindingStatus.MISSING, "no daemon answers"),
    ],
    ids=["answers", "newer version", "older version", "not allowed", "gone", "hangs"],
)
def test_the_daemon_is_queried(slurm, response, status, text):
    def exchange(_at):
        if isinstance(response, OSError):
            raise response
        return response

    cluster = slurm("gpu:h100:8")
    site = config.SiteConfig(socket=Path("/run/s"))
    (finding,) = (
        f for f in check(cluster, read_site=lambda _: site, exchange=exchange) if "/run/s" in f.text
    )
    assert (finding.status, text in finding.text) == (status, True), finding.summary
