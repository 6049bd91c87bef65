"""docs/install.md, Slurm: the .deb and a virtual environment, on a copy of this machine."""

import shutil

import pytest

pytestmark = [
    pytest.mark.install,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="the .deb is for Debian"),
]
PLACED = """
test -f /etc/slurm/job_submit.lua -a -f /etc/slurm/rightsizer.lua -a -f /etc/slurm/rightsizer.conf
grep ExecStart=/ /etc/systemd/system/rightsizer-slurm.service
"""
PLAN = "rightsizer plan --model gpt2 --tokens 1B --gpu A100 --gpus 8"


def test_the_deb_is_installed_upgraded_and_removed(machine, blocks):
    deb, _, _, begin, upgrade, remove = blocks("Slurm")
    said = machine("\n".join((deb, PLACED, begin, PLAN, upgrade, remove, "test ! -e /usr/bin/rightsizer")))
    assert "nothing is written without --place" in said
    assert "ExecStart=/usr/bin/rightsizer slurm daemon --monitor --config /etc/slurm/rightsizer.conf" in said
    assert "8 A100" in said


def test_nothing_of_the_deb_stays(machine, blocks):
    deb, _, _, _, _, remove = blocks("Slurm")
    left = machine(f"{deb}{remove}find /opt/rightsizer /etc/slurm/rightsizer* 2>/dev/null || true")
    assert "/opt/rightsizer" not in left.partition("Removing rightsizer")[2]


def test_a_virtual_environment_does_the_same(machine, blocks):
    _, _, venv, begin, _, _ = blocks("Slurm")
    said = machine("\n".join((venv, PLACED, begin, f"/opt/rightsizer/bin/{PLAN}")))
    assert "ExecStart=/opt/rightsizer/bin/rightsizer slurm daemon" in said


def test_the_rpm_is_installed_and_removed_by_rpm(machine):
    rpm = "apt-get update -qq; apt-get install --yes -qq --no-install-recommends rpm >/dev/null; rpm --initdb"
    install = "rpm -i --nodeps rightsizer-*.rpm; rightsizer slurm install --place"
    said = machine("\n".join((rpm, install, PLACED, PLAN, "rpm -e rightsizer", "test ! -e /opt/rightsizer")))
    assert "8 A100" in said
