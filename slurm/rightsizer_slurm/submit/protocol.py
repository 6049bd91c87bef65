"""The line protocol between the submit plugins and the daemon, version 2. Pure.

A request is `RIGHTSIZER 2 SIZE`, key=value lines, `END`; a response is `RIGHTSIZER 2 OK|REFUSE|HOLD|KEEP`,
key=value lines, `END`. Lines end in a newline; the daemon closes the connection after its response. The
plugin (data/*.lua) accepts only the fields that it knows, and checks their bounds.

In version 1 the request's first line was `RIGHTSIZER 1 PLAN`; the rest is equal. The daemon responds in the
version of the request, so a plugin of version 1 works until it is replaced. A plugin of version 2 takes the
response of an older daemon for a fault: the job is submitted unchanged, or held where sizes are enforced.
"""

import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any
from urllib.parse import unquote

from rightsizer_api.untrusted_text import one_line
from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable
from rightsizer_slurm.cluster.jobs import gres_gpus

VERSION = 2
_VERBS = {1: "PLAN", 2: "SIZE"}
"""The versions that the daemon understands, and the verb of their requests."""
END = b"\nEND\n"
MAX_REQUEST_BYTES = 8192
_LONGEST_TEXT = 900
_HEAD = re.compile(r"RIGHTSIZER ([0-9]{1,4}) ([A-Z]{1,16})")
_NUMBER = re.compile(r"[0-9]{1,18}")
_HELD = re.compile(r"\[rightsizer/1 held ([^\[\]]*)\]")


class SizingVerdict(enum.StrEnum):
    """The plugin's action: set fields, refuse the job, hold it until it is sized, or leave it unchanged."""

    OK = "OK"
    REFUSE = "REFUSE"
    HOLD = "HOLD"
    KEEP = "KEEP"


@immutable
class SizingRequest:
    """A submitted job; None and "" mean that its user did not set the option. Times are in minutes.

    `requeues` is 1 if its script calls `scontrol requeue`, `silent` if it is no shell's: it cannot say that
    it has no size.
    `uid` is the submitter: from slurmctld, or from the kernel (SO_PEERCRED).
    """

    comment: str = ""
    kind: str = "sbatch"
    mode: str = "size"
    uid: int = -1
    user: str = ""
    account: str = ""
    qos: str = ""
    partition: str = ""
    min_nodes: int | None = None
    max_nodes: int | None = None
    num_tasks: int | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    time_limit: int | None = None
    time_min: int | None = None
    gres: str = ""
    tres_per_job: str = ""
    exclusive: int | None = None
    req_nodes: str = ""
    exc_nodes: str = ""
    features: str = ""
    node_cpus: int | None = None
    node_mb: int | None = None
    core_mb: int | None = None
    gpu_memory: str = ""
    deadline: str = ""
    reservation: str = ""
    array: str = ""
    requeues: int | None = None
    priority: int | None = None
    silent: int | None = None

    @property
    def same(self) -> "SizingRequest":
        """The request without its submitter: what the response depends on, so the cache key."""
        mode = self.mode if self.exclusive == 0 else ""  # enforce refuses whole nodes that are not needed
        return dataclasses.replace(
            self, uid=-1, user="", kind="", mode=mode, array="", priority=None, silent=None
        )

    @property
    def most_nodes(self) -> int | None:
        """The most nodes that the user's options allow."""
        nodes = self.max_nodes or self.min_nodes or None
        per_node = self.node_tasks if self.ntasks_per_node else None
        tasks = self.num_tasks // (per_node or 1) if self.num_tasks else None
        return min(filter(None, (nodes, tasks)), default=None)

    @property
    def node_tasks(self) -> int | None:
        """The tasks of each node if the user's options say it: directly, or with as many tasks as nodes."""
        if self.ntasks_per_node:
            return min(self.ntasks_per_node, self.num_tasks or self.ntasks_per_node)
        one_each = self.num_tasks and self.num_tasks == (self.max_nodes or self.min_nodes)
        return 1 if one_each else None

    @property
    def gpu_type(self) -> str:
        """The GRES type that the user requested; empty if none."""
        return gres_gpus(self.gres)[0] or gres_gpus(self.tres_per_job)[0]


@immutable
class SizingResponse:
    """A verdict, the line for the user's terminal, the fields to set and the RIGHTSIZER_* variables.

    `code` is the kind of a refusal for Slurm (comment, time, nodes, policy, size), or "fault" if sizing
    failed.
    """

    verdict: SizingVerdict
    say: str = ""
    code: str = ""
    fields: Mapping[str, int | str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


_FIELDS = {f.name: f for f in dataclasses.fields(SizingRequest)}


def request_text(fields: Mapping[str, str]) -> bytes:
    """A request on the wire, of a program that is no plugin."""
    lines = (f"{key}={value}\n" for key, value in fields.items())
    return f"RIGHTSIZER {VERSION} {_VERBS[VERSION]}\n{''.join(lines)}END\n".encode()


def parse_request(data: bytes) -> SizingRequest:
    """Parse a request. Unknown keys are ignored. InputError if it is invalid."""
    text = data.decode("ascii", errors="replace")
    head, *lines = text.removesuffix("\n").split("\n")
    match = _HEAD.fullmatch(head)
    version = int(match[1]) if match else VERSION
    if version not in _VERBS:
        raise InputError("request", value=version, remedy=f"is another protocol version; this is {VERSION}")
    if match is None or match[2] != _VERBS[version] or lines[-1:] != ["END"]:
        raise InputError("request", value=one_line(head, 60), remedy="is not a request of this protocol")
    return _request(line.partition("=")[::2] for line in lines[:-1])


def version_of(data: bytes) -> int:
    """The version of a request, in which it gets its response; the newest for a request of an unknown one."""
    match = _HEAD.match(data[:40].decode("ascii", errors="replace"))
    version = int(match[1]) if match else VERSION
    return version if version in _VERBS else VERSION


def held_request(admin_comment: str) -> SizingRequest | None:
    """The request of a job that the plugin held, from its AdminComment; None if it has none.

    Only the plugin and administrators write there. The comment and the submitter are those of the job.
    """
    found = _HELD.search(admin_comment)
    if found is None:
        return None
    words = (word.partition("=")[::2] for word in found[1].split())
    try:
        return _request((key, unquote(value, errors="replace")) for key, value in words)
    except InputError:
        return None


def _request(pairs: Iterable[tuple[str, str]]) -> SizingRequest:
    """A request of these fields; InputError if a number is none."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key not in _FIELDS:
            continue
        if _FIELDS[key].type in {int, int | None}:
            if not _NUMBER.fullmatch(value):
                raise InputError(key, value=one_line(value, 60), remedy="is not a number")
            values[key] = int(value)
        else:
            values[key] = value
    return dataclasses.replace(SizingRequest(), **values)


def response_text(response: SizingResponse, *, version: int = VERSION) -> bytes:
    """The response on the wire. Every text stays on its own line."""
    lines = [f"RIGHTSIZER {version} {response.verdict}"]
    lines += [f"{key}={one_line(str(value))}" for key, value in response.fields.items()]
    lines += [f"env.{key}={one_line(value)}" for key, value in response.variables.items()]
    lines += [f"code={response.code}"] if response.code else []
    lines += [f"say={one_line(response.say, _LONGEST_TEXT)}", "END", ""]
    return "\n".join(lines).encode("ascii")
