"""This machine's missing parts for a cluster, in one list."""

import os
import shutil
import sys

import cgroups
import host
import node
from place import ClusterError

INSTALLED = {  # program -> what needs it
    "containerd": "runs the containers",
    "ctr": "imports the images",
    "runc": "runs the containers",
    "ip": "makes the nodes' networks",
    "iptables": "kube-proxy's Services",
    "nsenter": "starts a node's daemons in its network",
    "unshare": "gives each node its own mounts",
    "openssl": "makes the certificates",
    "sysctl": "lets the nodes forward packets",
}


def check() -> None:
    """Raise with everything that is missing."""
    if missing := lacks():
        raise ClusterError(f"no Kubernetes on this machine: {'; '.join(missing)}")


def lacks() -> tuple[str, ...]:
    """Each thing that is missing, and the remedy."""
    if sys.platform != "linux":
        return ("needs Linux",)
    if os.geteuid() != 0:
        return ("needs root, to make namespaces and cgroups",)
    found = [f"{name} ({why})" for name, why in INSTALLED.items() if shutil.which(name) is None]
    if node.cni_plugins() is None:
        found.append("CNI plugins (connect pods to their node)")
    programs = [f"{', '.join(found)} not found: run tests/e2e/cluster/install.sh"] if found else []
    return (*programs, *_kernel_lacks())


def _kernel_lacks() -> list[str]:
    found = []
    if shutil.which("unshare") and host.ask("unshare", "--net", "--mount", "true").returncode != 0:
        found.append("may not make network and mount namespaces (in a container: run it with --privileged)")
    if not cgroups.hierarchies():
        found.append("no cgroups under /sys/fs/cgroup")
    elif not all(os.access(root, os.W_OK) for root in cgroups.hierarchies()):
        found.append("/sys/fs/cgroup is read-only (in a container: run it with --privileged)")
    return found
