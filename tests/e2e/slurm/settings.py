"""The files of a cluster: slurm.conf, gres.conf, keys, pretended GPUs."""

import os
import re
import shutil
import socket
import stat
import subprocess
from contextlib import ExitStack
from pathlib import Path

import accounting
from place import FIRST_PORT, KINDS, LAST_PORT, PORTS, USER, ClusterError, Kind, Place

_NULL_DEVICE = os.makedev(1, 3)
_ACCOUNTING_PORT, _METRICS_PORT = 20, 25  # behind the first of the cluster's ports

_SLURM_CONF = """\
ClusterName={name}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={unused}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={home}/run/munge.sock,cred_expire=5
SlurmUser={user}
SlurmdUser=root
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool/%n
SlurmctldPidFile={home}/run/slurmctld.pid
SlurmdPidFile={home}/run/slurmd-%n.pid
SlurmctldLogFile={home}/log/slurmctld.log
SlurmdLogFile={home}/log/slurmd-%n.log
SlurmdParameters=config_overrides
MailProg={home}/etc/mail.sh
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
MpiDefault=none
ReturnToService=2
GresTypes=gpu,nvme
SlurmctldTimeout=30
SlurmdTimeout=10
KillWait=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MinJobAge=600
MaxJobCount=20000
"""
"""cred_expire is what a requeued job waits (120 s by default); AccountingStorageType is left at none."""

_OURS = {
    "mode": "size",  # warn, as shipped, changes no job
    "users": "yes",  # tests of cli_filter.lua ask as users
}
"""What differs from the packaged rightsizer.conf beside its folders, and why. Times are those that ship."""
_MONITOR = """
[monitor]
every = 5s     # tests wait for its looks
metrics = 127.0.0.1:{metrics}
"""

_MAIL = """\
#!/bin/sh
{{ echo "== $*"; env | grep ^SLURM_; cat; }} >> {log}/mail.log
"""


def write(at: Place) -> None:
    """Everything that the daemons read."""
    for folder in ("etc", "run", "log", "state", "dev", "spool", "run/rightsizer"):
        (at.home / folder).mkdir(parents=True, exist_ok=True)
    for folder in ("state", "log", "run", "run/rightsizer"):
        shutil.chown(at.home / folder, USER, USER)
    runs = at.home / "runs"
    runs.mkdir(exist_ok=True)
    shutil.chown(runs, USER, USER)
    runs.chmod(0o3733)
    _key(at)
    _devices(at)
    mail = at.etc / "mail.sh"
    mail.write_text(_MAIL.format(log=at.log))
    mail.chmod(0o755)
    plugin = "disabled" if _version() >= (23, 11) else "cgroup/v1"  # which is loaded, and not used
    (at.etc / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\n")
    (at.etc / "gres.conf").write_text("".join(_gres(at, kind) for kind in KINDS))
    port = _free_ports()
    lines = _SLURM_CONF.format(name=at.name, port=port, unused=port + 1, home=at.home, user=USER)
    lines += "JobSubmitPlugins=lua\n" if at.plugin else ""
    lines += accounting.slurm_conf(at, port + _ACCOUNTING_PORT) if at.accounting else ""
    at.conf.write_text(lines + _nodes(port + 2) + "".join(_partition(kind) for kind in KINDS))


def _version() -> tuple[int, int]:
    """The version of the installed Slurm, such as (22, 5)."""
    path = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    said = subprocess.run(["slurmctld", "-V"], check=True, capture_output=True, text=True, env=path).stdout
    major, minor = said.split()[1].split(".")[:2]
    return int(major), int(minor)


def _key(at: Place) -> None:
    key = at.etc / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(stat.S_IRUSR)


def _devices(at: Place) -> None:
    """A GRES with a count needs device files; plain files are refused, /dev/null under other names is not."""
    for index in range(max(kind.gpus for kind in KINDS)):
        path = at.home / "dev" / f"nvidia{index}"
        if not path.exists():
            os.mknod(path, stat.S_IFCHR | 0o666, _NULL_DEVICE)


def _gres(at: Place, kind: Kind) -> str:
    files = f"{at.home}/dev/nvidia[0-{kind.gpus - 1}]"
    nodes = ",".join(kind.nodes)
    other = "" if kind is KINDS[0] else f"NodeName={nodes} Name=nvme Count=2\n"
    return f"NodeName={nodes} Name=gpu Type={kind.gpu} File={files}\n{other}"


def _nodes(port: int) -> str:
    lines = []
    for kind in KINDS:
        for name in kind.nodes:
            other = "" if kind is KINDS[0] else ",nvme:2"
            lines.append(
                f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={kind.cpus}"
                f" Sockets={kind.sockets} CoresPerSocket={kind.cpus // kind.sockets} ThreadsPerCore=1"
                f" RealMemory={kind.memory_mb} Gres=gpu:{kind.gpu}:{kind.gpus}{other} Feature={kind.gpu}\n"
            )
            port += 1
    return "".join(lines)


def _partition(kind: Kind) -> str:
    default = " Default=YES" if kind is KINDS[0] else ""
    nodes = ",".join(kind.nodes)
    return f"PartitionName={kind.partition} Nodes={nodes}{default} MaxTime={kind.max_time} DefaultTime=60\n"


def _free_ports() -> int:
    """The first of PORTS neighbouring free ports."""
    for first in range(FIRST_PORT, LAST_PORT, PORTS):
        if all(_is_free(port) for port in range(first, first + PORTS)):
            return first
    raise ClusterError(f"no {PORTS} free ports between {FIRST_PORT} and {LAST_PORT}; end what listens there")


def _is_free(port: int) -> bool:
    with ExitStack() as stack:
        probe = stack.enter_context(socket.socket())
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def install_plugin(at: Place, source: Path) -> None:
    """The Lua files and rightsizer.conf beside slurm.conf, as an admin would."""
    for path in sorted(source.glob("*.lua")):
        shutil.copy(path, at.etc / path.name)
    port = int(re.search(r"^SlurmctldPort=(\d+)$", at.conf.read_text(), re.MULTILINE)[1])  # type: ignore[index]
    shipped = (source / "rightsizer.conf").read_text()
    at.site.write_text(site_text(at, shipped) + _MONITOR.format(metrics=port + _METRICS_PORT))


def site_text(at: Place, shipped: str) -> str:
    """The packaged rightsizer.conf for a cluster of tests."""
    folders = {"socket": at.daemon / "plan.sock", "state": at.daemon / "state.db", "runs": at.home / "runs"}
    for key, value in (_OURS | folders | {"user": USER}).items():
        shipped, count = re.subn(rf"^#?{key} = \S+", f"{key} = {value}", shipped, count=1, flags=re.MULTILINE)
        if not count:
            raise ClusterError(f"the packaged rightsizer.conf has no line of {key}")
    return shipped
