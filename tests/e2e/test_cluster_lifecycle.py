import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.nightly]

CLUSTER = Path(__file__).resolve().parent / "cluster" / "cluster.py"
STATE = Path("/var/lib/rightsizer-cluster")


def _left(name):
    """Remains of the cluster on this machine, found without cluster.py."""
    commands = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if _readable(p)]
    processes = [c.decode() for c in commands if f"{STATE}/{name}/".encode() in c]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if f"{STATE}/{name}/" in line]
    namespaces = [p.name for p in Path("/run/netns").glob(f"{name}-*")]
    groups = [str(p) for p in Path("/sys/fs/cgroup").glob(f"**/{name}-cluster")]
    files = [str(p) for p in (STATE / name,) if p.exists()]
    return processes + mounts + namespaces + groups + files


def _readable(path):
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


def test_down_leaves_no_process_namespace_mount_or_cgroup(control):
    control("brief", "up", nodes=1)
    assert _left("brief")
    control("brief", "down", nodes=1)
    assert _left("brief") == []


def test_down_of_a_cluster_that_is_down_is_no_error(control):
    control("brief", "down")
    assert _left("brief") == []


@pytest.mark.parametrize("until", ["etcd", "apiserver", "n1-kubelet"])
def test_up_cleans_what_a_killed_up_left(control, until):
    environment = {**os.environ, "RIGHTSIZER_CLUSTER": "killed", "RIGHTSIZER_CLUSTER_NODES": "1"}
    up = subprocess.Popen([sys.executable, CLUSTER, "up"], env=environment, stderr=subprocess.DEVNULL)
    record = STATE / "killed" / "pids" / until
    while not record.exists():
        assert up.poll() is None
        time.sleep(0.01)
    up.send_signal(signal.SIGKILL)
    up.wait()
    assert _left("killed")
    assert "export KUBECONFIG=" in control("killed", "up", nodes=1).stdout
    control("killed", "down", nodes=1)
    assert _left("killed") == []


def test_up_of_a_running_cluster_keeps_it(control, cluster):
    before = cluster.api.get("namespace", "kube-system")["metadata"]["uid"]
    assert control(cluster.name, "up").stdout == f"export KUBECONFIG={cluster.kubeconfig}\n"
    assert cluster.api.get("namespace", "kube-system")["metadata"]["uid"] == before
