"""The #SBATCH lines of a user's batch script, as the submit plugin would see them. Pure."""

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rightsizer_engine.errors import InputError
from rightsizer_engine.units import parse_duration_s
from rightsizer_slurm.cluster.jobs import other_gres
from rightsizer_slurm.submit.protocol import SizingRequest

_SHORT = {
    "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "t": "time", "p": "partition", "A": "account",
    "q": "qos", "J": "job-name", "o": "output", "a": "array", "G": "gpus",
    "w": "nodelist", "x": "exclude", "C": "constraint",
}  # fmt: skip
_NOT_SIZED = ("gpus", "gpus-per-task", "gpus-per-socket", "cpus-per-gpu", "ntasks-per-gpu")
_MEMORY = re.compile(r"(\d{1,12})([KMGT]?)B?", re.IGNORECASE)
_MB = {"K": 2.0**-10, "": 1.0, "M": 1.0, "G": 2.0**10, "T": 2.0**20}
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def directives(text: str) -> Mapping[str, str]:
    """Long option names and values of the #SBATCH lines before the first command; the last one wins."""
    options: dict[str, str] = {}
    for tokens in _lines(text):
        pending = ""
        for word in tokens:
            if word.startswith("--"):
                name, equals, value = word[2:].partition("=")
                options[name], pending = value, "" if equals else name
            elif word.startswith("-") and len(word) > 1 and word[1] in _SHORT:
                name = _SHORT[word[1]]
                options[name], pending = word[2:].removeprefix("="), "" if word[2:] else name
            elif pending:
                options[pending], pending = word, ""
    return options


def requeues(text: str) -> bool:
    """Whether a batch script goes on after its time limit: it calls scontrol requeue, and may be requeued.

    The plugin's rule (`requeues` in rightsizer.lua).
    """
    calls = re.search(r"^[^#\n]*scontrol\s+requeue(?![A-Za-z0-9])", text, re.MULTILINE)
    return calls is not None and "no-requeue" not in directives(text)


def request_of(
    options: Mapping[str, str], *, partition: str = "", account: str = "", time: str = ""
) -> SizingRequest:
    """The script's options as the plugin's request; `partition`, `account` and `time` take precedence."""
    for name in _NOT_SIZED:
        if name in options:
            remedy = "does not fix the GPUs per node; use --gpus-per-node or leave it out"
            raise InputError(f"#SBATCH --{name}", value=options[name], remedy=remedy)
    low, _, high = options.get("nodes", "").partition("-")
    node_gpus = options.get("gpus-per-node", "")
    gres = (options.get("gres", ""), f"gpu:{node_gpus}" if node_gpus else "")
    result = SizingRequest(
        comment=options.get("comment", ""),
        partition=partition or options.get("partition", ""),
        account=account or options.get("account", ""),
        min_nodes=_number("nodes", low),
        max_nodes=_number("nodes", high or low),
        num_tasks=_number("ntasks", options.get("ntasks", "")),
        ntasks_per_node=_number("ntasks-per-node", options.get("ntasks-per-node", "")),
        cpus_per_task=_number("cpus-per-task", options.get("cpus-per-task", "")),
        gres=",".join(filter(None, gres)),
        exclusive=0 if options.get("exclusive") == "" else None,
        req_nodes=options.get("nodelist", ""),
        exc_nodes=options.get("exclude", ""),
        features=options.get("constraint", ""),
        reservation=options.get("reservation", ""),
        deadline=options.get("deadline", ""),
        node_cpus=_number("mincpus", options.get("mincpus", "")),
        node_mb=_megabytes("mem", options),
        core_mb=_megabytes("mem-per-cpu", options),
    )
    minutes = _minutes("time", options)
    if time:
        flag = max(1, round(parse_duration_s(time, field="--time") / 60))
        minutes = min(filter(None, (minutes, flag)))
    return replace(result, time_limit=minutes, time_min=_minutes("time-min", options))


def overrides(fields: Mapping[str, int | str], options: Mapping[str, str]) -> tuple[str, ...]:
    """The plugin's fields as sbatch options, which override the script's lines."""
    gres = str(fields.get("gres", ""))
    gpus = f"--gres={','.join((gres, *other_gres(options.get('gres', ''))))}"
    if "gpus-per-node" in options:
        gpus = f"--gpus-per-node={gres.removeprefix('gpu:')}"
    named = {
        "--nodes": fields.get("max_nodes"),
        "--ntasks": fields.get("num_tasks"),
        "--cpus-per-task": fields.get("cpus_per_task"),
        "--partition": fields.get("partition"),
        "--time": fields.get("time_limit"),
    }
    return (*(f"{name}={value}" for name, value in named.items() if value is not None), gpus)


def _lines(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            try:
                yield shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError as error:
                raise InputError("#SBATCH", value=line[:80], remedy=f"cannot be read: {error}") from None
        elif line.strip() and not line.startswith("#"):
            return


def _number(name: str, text: str) -> int | None:
    if not text:
        return None
    if not text.isdigit():
        raise InputError(f"#SBATCH --{name}", value=text, remedy="is not a number")
    return int(text)


def _megabytes(name: str, options: Mapping[str, str]) -> int | None:
    if name not in options:
        return None
    match = _MEMORY.fullmatch(options[name])
    if match is None:
        raise InputError(
            f"#SBATCH --{name}", value=options[name], remedy="is not a size; write for example 64G"
        )
    return math.ceil(int(match[1]) * _MB[match[2].upper()])


def _minutes(name: str, options: Mapping[str, str]) -> int | None:
    """Minutes of Slurm's minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    text = options.get(name, "")
    if not text:
        return None
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise InputError(
            f"#SBATCH --{name}", value=text, remedy="is not a time limit; write for example 12:00:00"
        )
    days, *rest = match.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return max(1, int(days or 0) * 1440 + hours * 60 + minutes + (seconds > 0))
