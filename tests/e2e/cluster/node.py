"""A node: containerd, kubelet, kube-proxy, pretended GPUs, in a network namespace and cgroup of its own."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import cgroups
import daemons
import host
import images
import pki
from daemons import Daemon
from place import CONTROL_PLANE_ADDRESS, POD_ADDRESSES, REPOSITORY, ClusterError, Node

BROKEN_GPUS = "rightsizer-unhealthy-gpus"  # gpu-plugin/main.go
DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"  # the kubelet listens there, whatever its --root-dir
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))  # Debian's package; everybody else
# Where containerd, CNI and kubelet keep things whatever they are told: each node has its own, in a mount
# namespace that lives as long as its processes, so that no mount of a node can outlive it.
OWN_FOLDERS = ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log")
MACHINE = """\
own=$1 pause=$2
shift 2
for folder in "$@"; do
  mkdir -p "$own$folder" "$folder" && mount --bind "$own$folder" "$folder" || exit 1
done
exec "$pause"
"""
PARTS = ("machine", "containerd", "kubelet", "proxy", "gpus")  # in the order of their start
CONTAINERD = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
oom_score = 0
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  sandbox_image = "{pause}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{folder}/base.json"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.image-only]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{folder}/image-only.json"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
"""


def start_containerd(node: Node, binaries: Mapping[str, Path]) -> None:
    """The first half of a node's start."""
    (node.folder / "cni").mkdir(parents=True, exist_ok=True)
    own = ("sh", "-c", MACHINE, "machine", node.folder / "own", binaries["pause"], *OWN_FOLDERS)
    _start(node, "machine", ["unshare", "--mount", "--propagation=private", *own])
    _wait_for_machine(node)
    configuration = node.folder / "containerd.toml"
    configuration.write_text(CONTAINERD.format(folder=node.folder, pause=images.PAUSE, plugins=cni_plugins()))
    (node.folder / "base.json").write_text(json.dumps(_base_spec(mounts())))
    (node.folder / "image-only.json").write_text(json.dumps(_base_spec(())))
    (node.folder / "cni" / "pods.conflist").write_text(json.dumps(_cni(node)))
    _start(node, "containerd", ["containerd", "--config", configuration])


def start_kubelet(node: Node, binaries: Mapping[str, Path]) -> None:
    """The second half, once containerd has the images: kubelet, kube-proxy, GPUs."""
    cgroups.make(f"{node.cgroup}/pods")
    kubelet, proxy = node.folder / "kubelet.json", node.folder / "proxy.json"
    kubelet.write_text(json.dumps(_kubelet(node)))
    proxy.write_text(json.dumps(_proxy(node)))
    _start(node, "kubelet", _kubelet_command(node, binaries["kubelet"], kubelet))
    _start(node, "proxy", [binaries["kube-proxy"], f"--config={proxy}"])
    _start(node, "gpus", [binaries["gpu-plugin"], DEVICE_PLUGINS, str(node.place.gpus_per_node)])


def import_images(node: Node, archive: Path) -> None:
    """Give the node the images of an archive, once its containerd listens."""
    _wait_for_containerd(node)
    host.run("ctr", "--address", node.socket, "--namespace", "k8s.io", "images", "import", archive)


def import_by_digest(node: Node, archive: Path, repository: str) -> None:
    """Give the node an image that is only known as REPOSITORY@DIGEST."""
    ctr = ("ctr", "--address", node.socket, "--namespace", "k8s.io")
    host.run(*ctr, "images", "import", "--base-name", repository, "--digests", archive)


def kill(node: Node) -> None:
    """Kill kubelet, containerd, shims and containers at once; the kernel still closes their connections."""
    # the pods' networks live in the machine's mounts: without them no FIN would leave, as in a power failure
    cgroups.kill(node.cgroup, but=daemons.pid(node.place, f"{node.name}-machine"))
    cgroups.kill(node.cgroup)


def restart(node: Node) -> None:
    """Power on: the same node with what is on its disk."""
    for part in PARTS:
        daemons.restart(node.place, f"{node.name}-{part}")
        if part == "machine":
            _wait_for_machine(node)
        elif part == "containerd":
            _wait_for_containerd(node)  # a kubelet that cannot reach it ends, and nobody starts it again


def break_gpus(node: Node, indexes: Sequence[str]) -> None:
    """Let the device plugin report these GPUs as unhealthy, and the others as healthy."""
    (node.folder / "own" / DEVICE_PLUGINS[1:] / BROKEN_GPUS).write_text(" ".join(indexes))


def cni_plugins() -> Path | None:
    """The folder with the `bridge` plugin, if it is installed."""
    return next((folder for folder in CNI_FOLDERS if (folder / "bridge").exists()), None)


def mounts() -> tuple[Path, ...]:
    """The paths of this machine in every container, read-only: programs, Python, the checkout."""
    wanted = (
        Path("/usr"),
        Path("/etc/alternatives"),
        Path("/etc/ssl"),
        *map(Path, (sys.base_prefix, sys.prefix)),
    )
    chosen: list[Path] = []
    for path in (*wanted, REPOSITORY):
        if path.exists() and not any(path.is_relative_to(other) for other in chosen):
            chosen.append(path)
    return tuple(chosen)


def _start(node: Node, part: str, argv: list[str | Path]) -> None:
    what = Daemon(
        name=f"{node.name}-{part}",
        argv=tuple(map(str, argv)),
        cgroup=f"{node.cgroup}/daemons",
        namespace=node.namespace,
        mounts_of=None if part == "machine" else f"{node.name}-machine",
    )
    daemons.start(node.place, what)


def _wait_for_machine(node: Node) -> None:
    """Until its mounts are made: then it has become `pause`."""

    def made() -> bool:
        process = daemons.pid(node.place, f"{node.name}-machine")
        return process is not None and os.readlink(f"/proc/{process}/exe").endswith("/pause")

    look_at = node.place.log / f"{node.name}-machine.log"
    host.wait(f"the mounts of {node.name}", made, within_s=10, look_at=look_at)


def _wait_for_containerd(node: Node) -> None:
    answers = ("ctr", "--address", node.socket, "version")
    look_at = node.place.log / f"{node.name}-containerd.log"
    host.wait(
        f"containerd of {node.name}", lambda: host.ask(*answers).returncode == 0, within_s=30, look_at=look_at
    )


def _base_spec(from_machine: Sequence[Path]) -> dict[str, object]:
    spec: dict[str, object] = json.loads(host.run("ctr", "oci", "spec"))
    process, existing = spec["process"], spec["mounts"]
    if not (isinstance(process, dict) and isinstance(existing, list)):
        raise ClusterError("`ctr oci spec` prints no OCI runtime spec")
    # neither may be raised without CAP_SYS_RESOURCE, which machines inside machines often lack
    process.pop("oomScoreAdj", None)
    process["rlimits"] = []
    existing += [
        {"destination": str(p), "type": "bind", "source": str(p), "options": ["rbind", "ro"]}
        for p in from_machine
    ]
    return spec


def _cni(node: Node) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "dataDir": str(node.folder / "addresses"),
        "ranges": [[{"subnet": node.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "ipMasq": False, "ipam": addresses}
    # hairpin: a pod that calls the Service it serves itself
    bridge["hairpinMode"] = True
    return {
        "cniVersion": "0.4.0",
        "name": f"{node.place.name}-pods",
        "plugins": [bridge, {"type": "loopback"}],
    }


def _kubelet(node: Node) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{node.socket}",
        "tlsCertFile": f"{node.place.pki}/{node.name}.crt",
        "tlsPrivateKeyFile": f"{node.place.pki}/{node.name}.key",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{node.place.pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}/pods",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        "podCIDR": node.pods,
        "clusterDNS": [CONTROL_PLANE_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        # the machine's disk is not ours to tidy
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 20,
        "syncFrequency": "10s",
        "serializeImagePulls": False,
        "maxPods": 200,
        "readOnlyPort": 0,
    }


def _kubelet_command(node: Node, binary: Path, configuration: Path) -> list[str | Path]:
    at = node.place
    labels = {
        # as NVIDIA's GPU feature discovery sets them
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": at.gpu_product,
        "nvidia.com/gpu.count": str(at.gpus_per_node),
        "nvidia.com/gpu.memory": str(at.gpu_memory_mib),
        "rightsizer.test/gpus": "pretended",
    }
    return [
        binary,
        f"--config={configuration}",
        f"--kubeconfig={pki.kubeconfig(at, node.name)}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--node-labels={','.join(f'{key}={value}' for key, value in labels.items())}",
    ]


def _proxy(node: Node) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": POD_ADDRESSES,
        "clientConnection": {"kubeconfig": str(pki.kubeconfig(node.place, "proxy"))},
        "hostnameOverride": node.name,
        "conntrack": {"maxPerCore": 0, "min": 0},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }
