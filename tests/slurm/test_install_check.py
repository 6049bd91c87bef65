"""What an admin is told of GPUs, and that the lines which are told do what they say."""

import json
from pathlib import Path

import pytest

from rightsizer_slurm.cluster import config
from rightsizer_slurm.cluster.slurm_cli import Slurm
from rightsizer_slurm.install_check import State, check

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
    return [each for each in check(slurm) if each.what.startswith("gpu") or "has GPUs" in each.what]


@pytest.mark.parametrize(
    ("node", "site", "state", "said"),
    [
        (("gpu:h100:8", ""), "", State.OK, "gpu:h100 is H100-SXM5-80GB here"),
        (("gpu:8", "a100"), "", State.OK, "gpu without a type is A100-SXM4-80GB here"),
        (("gpu:8", ""), "", State.MISSING, "gpu without a type is no GPU that the engine knows"),
        (("gpu:weird:8", ""), "", State.MISSING, "gpu:weird is no GPU that the engine knows"),
        (("gpu:1g.10gb:7", ""), "", State.MISSING, "gpu:1g.10gb is no GPU that the engine knows"),
        (("gpu:weird:8", ""), "[gpus]\nweird = H200", State.OK, "by [gpus] of rightsizer.conf"),
        (("gpu:weird:8", ""), "[gpus]\nweird = none", State.NOTE, "is not for training"),
        (("(null)", ""), "", State.MISSING, "no node has GPUs that Slurm knows of"),
    ],
    ids=["known", "by feature", "untyped", "unknown", "slice", "mapped", "none", "no GPUs"],
)
def test_an_admin_is_told_what_each_gres_type_is(slurm, node, site, state, said):
    gres, features = node
    cluster = slurm(gres, features=features or "(null)")
    (cluster.folder / "rightsizer.conf").write_text(site)
    (found,) = gpus(cluster)
    assert (found.state, said in found.what) == (state, True), found.words


def test_the_lines_for_unknown_types_are_a_file_that_leaves_none_unknown(slurm, tmp_path):
    cluster = slurm("gpu:weird:8", "gpu:1g.10gb:7", "gpu:4", "gpu:h100:8")
    missing = [each for each in gpus(cluster) if each.state is State.MISSING]
    lines = [line for each in missing for line in each.lines]
    assert [line.split(" ")[0] for line in lines] == ["[gpus]", "untyped", "1g.10gb", "weird"]
    assert {each.file for each in missing if each.lines} == {"rightsizer.conf"}
    (tmp_path / "rightsizer.conf").write_text("\n".join(lines))
    assert set(config.read(tmp_path / "rightsizer.conf").gpus) == {"untyped", "1g.10gb", "weird"}
    assert [each.state for each in gpus(cluster)] == [State.NOTE, State.NOTE, State.OK, State.NOTE]


def test_a_file_that_maps_some_is_told_the_others_without_a_second_heading(slurm, tmp_path):
    (tmp_path / "rightsizer.conf").write_text("[gpus]\nodd = none\n")
    (found,) = (each for each in gpus(slurm("gpu:odd:8", "gpu:weird:8")) if each.state is State.MISSING)
    assert found.lines[0] == "weird = none    # or a name of `rightsizer gpus`"
