"""torchrun's environment, and how it starts a plan's program. Pure.

The rendezvous is c10d with an *external* store (`is_host=0` everywhere): no worker is a single point of
failure. `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` keeps the workers' store apart from the rendezvous store. If
they share one, a joining agent kills the whole job (PyTorch 2.4 to 2.15). The rendezvous id contains the
attempt, so a stray worker of an older attempt cannot join a newer world.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable

DEFAULT_PORT = 29400
"""c10d's default port; used where no other process shares the address (a pod), never on a shared machine."""


@immutable
class Program:
    """The program that torchrun starts on every worker: a Python script, a module, or any executable."""

    target: str
    arguments: tuple[str, ...] = ()
    module: bool = False
    python: bool = True


@immutable
class Torchrun:
    """One agent's view of an elastic job: `min_nodes` to `max_nodes` agents, each with `workers_per_node`.

    `endpoint` is host:port of the store. Once `min_nodes` agents have joined, the job waits `last_call_s` for
    more; it gives up after `join_s`. An agent that is silent for three `keep_alive_s` is dead.
    `max_restarts` limits worker failures, lost peers included. It is practically infinite: an agent that used
    up its restarts would close the rendezvous to later agents, so the plan's own budget stops a failing job.
    Workers have `shutdown_s` between SIGTERM and SIGKILL to save.
    """

    name: str
    attempt: int
    endpoint: str
    min_nodes: int
    max_nodes: int
    workers_per_node: int = 1
    local_address: str = ""
    join_s: int = 600
    last_call_s: int = 10
    read_s: int = 60
    keep_alive_s: int = 5
    max_restarts: int = 1_000_000
    shutdown_s: int = 60
    log_directory: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.min_nodes <= self.max_nodes:
            raise InputError(
                "nodes",
                value=f"{self.min_nodes}:{self.max_nodes}",
                remedy="min must be 1 or more and at most max",
            )

    @property
    def run_id(self) -> str:
        """The rendezvous id: the plan's name (or uid) and the attempt."""
        return f"{self.name}-{self.attempt}"

    @property
    def rendezvous_conf(self) -> str:
        """The value of `--rdzv-conf`."""
        conf = {
            "is_host": "0",
            "last_call_timeout": str(self.last_call_s),
            "join_timeout": str(self.join_s),
            "read_timeout": str(self.read_s),
            "keep_alive_interval": str(self.keep_alive_s),
            **self.conf,
        }
        return ",".join(f"{key}={value}" for key, value in conf.items())


def _settings(run: Torchrun) -> dict[str, str]:
    """Torchrun's options by name."""
    settings = {
        "nnodes": f"{run.min_nodes}:{run.max_nodes}",
        "nproc-per-node": str(run.workers_per_node),
        "rdzv-backend": "c10d",
        "rdzv-id": run.run_id,
        "rdzv-endpoint": run.endpoint,
        "rdzv-conf": run.rendezvous_conf,
        "max-restarts": str(run.max_restarts),
        "shutdown-timeout": str(run.shutdown_s),
    }
    if run.local_address:
        settings["local-addr"] = run.local_address
    if run.log_directory:
        settings |= {"log-dir": run.log_directory, "redirects": "3"}
    return settings


def environment(run: Torchrun) -> dict[str, str]:
    """The job as PET_* variables, which torchrun reads as options, and the switch that the store needs."""
    pet = {"PET_" + key.upper().replace("-", "_"): value for key, value in _settings(run).items()}
    return pet | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def program_arguments(target: Program) -> tuple[str, ...]:
    """Torchrun's arguments that start the program."""
    kind = ("--module",) if target.module else () if target.python else ("--no-python",)
    return (*kind, target.target, *target.arguments)


def program(command: Sequence[str]) -> Program:
    """The program of a plan's `launch.command`: `train.py ...`, `python [-m] ...` or any executable.

    A command that starts a launcher is refused: rightsizer starts torchrun itself.
    """
    if not command:
        raise InputError(
            "launch.command", value=list(command), remedy="name the training script, for example train.py"
        )
    head, rest = command[0], list(command[1:])
    name = head.rsplit("/", 1)[-1]
    if name in {"torchrun", "accelerate", "deepspeed"}:
        raise InputError(
            "launch.command", value=head, remedy="leave the launcher out; rightsizer starts torchrun itself"
        )
    if name.startswith("python"):
        rest = [argument for argument in rest if argument != "-u"] if rest[:1] == ["-u"] else rest
        if rest[:1] == ["-m"] and len(rest) > 1:
            return Program(target=rest[1], arguments=tuple(rest[2:]), module=True)
        if not rest or rest[0].startswith("-"):
            raise InputError(
                "launch.command",
                value=" ".join(command),
                remedy="use `python FILE ...` or `python -m MODULE ...`",
            )
        return Program(target=rest[0], arguments=tuple(rest[1:]))
    if head == "-m" and rest:
        return Program(target=rest[0], arguments=tuple(rest[1:]), module=True)
    return Program(target=head, arguments=tuple(rest), python=head.endswith(".py"))
