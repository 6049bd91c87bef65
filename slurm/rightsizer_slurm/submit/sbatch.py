"""`rightsizer sbatch`: a plan, or a script that speaks of one, sized to this cluster and submitted.

Exit codes: 0 submitted (or printed, or complete already), 2 bad input or Slurm refused, 3 no plan.
"""

import datetime as dt
import os
import pwd
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rightsizer.errors import InputError
from rightsizer.search.explain import verdict
from rightsizer.search.types import NoPlan
from rightsizer.units import parse_duration_s
from rightsizer.values import immutable
from rightsizer_api import dump, load, sizing
from rightsizer_api.placeholders import layout_values
from rightsizer_api.plan import TrainingPlan
from rightsizer_launch import calibration
from rightsizer_launch.local.run_folder import RunDirectory
from rightsizer_launch.worker_spec import WorkerSpec, target_of
from rightsizer_slurm.cluster import accounting_limits, config, runfile
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.comment import is_ours
from rightsizer_slurm.cluster.config import Site
from rightsizer_slurm.cluster.pools import pools
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError, settings
from rightsizer_slurm.cluster.untrusted_text import one_line
from rightsizer_slurm.submit import placement
from rightsizer_slurm.submit.answer import answer
from rightsizer_slurm.submit.batch_script import (
    Place,
    elastic_nodes,
    script,
    worker_of,
)
from rightsizer_slurm.submit.directives import directives, overrides, question
from rightsizer_slurm.submit.placement import Asked, Fitted
from rightsizer_slurm.submit.protocol import Verdict

__all__ = ["Options", "submit", "submit_plan", "submit_script"]

_NO_PLAN = 3
_SCRIPT = "job.sbatch"
_OURS = tuple(
    f"SBATCH_{name}"
    for name in (
        *(
            "JOB_NAME",
            "PARTITION",
            "GRES",
            "TIMELIMIT",
            "SIGNAL",
            "REQUEUE",
            "NO_REQUEUE",
            "NO_KILL",
            "OUTPUT",
        ),
        *("OPEN_MODE", "COMMENT", "GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK", "CPUS_PER_GPU", "EXCLUSIVE"),
    )
)
"""Variables that would change what the script says; the others (account, QOS ...) are the user's."""


@immutable
class Options:
    """What may be said beside the plan. What is said bounds the size, and is never exceeded.

    `nodes` and `time` (a duration) are the most it may take; `directory` holds the run (default runs/NAME);
    `python` is the interpreter on the nodes that has rightsizer; `rendezvous` is host:port of a store kept
    elsewhere; `more` are options for sbatch as they are.
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    nodes: int | None = None
    time: str = ""
    directory: Path | None = None
    python: str = sys.executable
    rendezvous: str = ""
    dry_run: bool = False
    more: tuple[str, ...] = ()


def submit(file: Path, options: Options, *, say: Callable[[str], None], slurm: Slurm | None = None) -> int:
    """Submit a plan, or a batch script of the user's own that speaks to rightsizer in its comment."""
    try:
        is_script = file.read_bytes()[:2] == b"#!"
    except OSError as error:
        raise InputError("FILE", value=str(file), remedy=f"cannot be read: {error.strerror}") from None
    if is_script:
        return submit_script(file, options, say=say, slurm=slurm)
    return submit_plan(file, options, say=say, slurm=slurm)


def submit_script(
    file: Path,
    options: Options,
    *,
    say: Callable[[str], None],
    slurm: Slurm | None = None,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Size the job of a user's own script by its comment, within its #SBATCH lines, and submit it."""
    found = directives(file.read_text(errors="replace"))
    if not is_ours(found.get("comment", "")):
        remedy = 'has no line #SBATCH --comment="rightsizer: model=... tokens=..."; add one, or give a plan'
        raise InputError("FILE", value=str(file), remedy=remedy)
    asked = question(found, partition=options.partition, account=options.account, time=options.time)
    if options.nodes is not None:
        asked = replace(asked, max_nodes=min(options.nodes, asked.max_nodes or options.nodes))
    door = SlurmCommands(slurm)
    account = asked.account or environment.get("SBATCH_ACCOUNT", "")
    qos = options.qos or found.get("qos", "") or environment.get("SBATCH_QOS", "")
    sized = answer(
        replace(asked, user=_user(), account=account, qos=qos),
        here=door.cluster(),
        site=Site(gpus=_names(door)),
        now=dt.datetime.now(dt.UTC),
        plan_of_file=lambda path: load(Path(path)),
        limits=_limits(door),
    )
    if sized.verdict is not Verdict.OK:
        say(sized.say)
        return _NO_PLAN
    chosen = {"--account": options.account, "--qos": options.qos}
    said = (f"{name}={value}" for name, value in chosen.items() if value)
    words = (*overrides(sized.fields, found), *said)
    command = ("--parsable", *words, *options.more, str(file))
    if options.dry_run:
        say(f"# {sized.say}\n{shlex.join(('sbatch', *command))}")
        return 0
    inherited = _inherited(environment) | dict(sized.variables)
    job = _number(door.slurm.run("sbatch", *command, environment=inherited))
    say(f"job {job}: {sized.say}")
    say(f"next: squeue --jobs={job}; rightsizer slurm report")
    return 0


def submit_plan(
    file: Path,
    options: Options,
    *,
    say: Callable[[str], None],
    slurm: Slurm | None = None,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Size the plan of a file, write its script, submit it; the exit code. `say` prints."""
    plan = load(file)
    target_of(plan)  # refuses a command that cannot be launched, before anything is sized
    door = SlurmCommands(slurm)
    directory = RunDirectory(path=(options.directory or Path("runs") / plan.metadata.name).resolve())
    if directory.done:
        say(f"{plan.metadata.name} is complete already ({directory.path}); another --dir starts over")
        return 0
    _check_directory(plan, directory, door)
    fitted = _fit(plan, options, door, environment)
    if isinstance(fitted, NoPlan):
        say(verdict(fitted))
        return _NO_PLAN
    place = _place(fitted, file, directory, options, door)
    text = script(fitted, place)
    if options.dry_run:
        say(text)
        return 0
    job = _submit(fitted, place, text, directory=directory, door=door, environment=environment)
    say(f"job {job}: {fitted.words}")
    say(f"next: squeue --jobs={job}; tail -f {directory.path}/slurm-{job}.out; rightsizer slurm report")
    return 0


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _names(door: SlurmCommands) -> Mapping[str, str]:
    """The site's map of gres types, if there is one that we may read."""
    return config.beside(settings(door.slurm).get("SLURM_CONF", "")).gpus


def _limits(door: SlurmCommands) -> accounting_limits.Limits:
    """What accounting allows; nothing where it does not answer: Slurm itself will then hold the job."""
    try:
        return accounting_limits.read(door.slurm)
    except SlurmError:
        return accounting_limits.Limits()


def _fit(
    plan: TrainingPlan, options: Options, door: SlurmCommands, environment: Mapping[str, str]
) -> Fitted | NoPlan:
    here = door.cluster()
    account = options.account or environment.get("SBATCH_ACCOUNT", "")
    everywhere = pools(
        here,
        names=_names(door),
        wanted=sizing.gpu_types(plan),
        partition=options.partition or environment.get("SBATCH_PARTITION", ""),
        account=account,
        node_gpus=plan.spec.resources.gpus_per_node,
    )
    found, _ = accounting_limits.within(
        everywhere,
        _limits(door),
        partitions=here.partitions,
        user=_user(),
        account=account,
        qos=options.qos or environment.get("SBATCH_QOS", ""),
    )
    limit_s = parse_duration_s(options.time, field="--time") if options.time else None
    return placement.fit(
        plan,
        found,
        have=here.words(),
        asked=Asked(nodes=options.nodes, time_s=limit_s),
        now=dt.datetime.now(dt.UTC),
        calibration=calibration.load(),
    )


def _place(
    fitted: Fitted, file: Path, directory: RunDirectory, options: Options, door: SlurmCommands
) -> Place:
    launch = fitted.plan.spec.launch
    home = file.resolve().parent
    if launch.image and "--container-image" not in door.slurm.run("srun", "--help"):
        remedy = "needs Pyxis, which this cluster's srun has not (no --container-image); leave the image out"
        raise InputError("spec.launch.image", value=launch.image, remedy=remedy)
    checkpoint = launch.checkpoint.path if launch.checkpoint else ""
    chosen = {"--account": options.account, "--qos": options.qos}
    return Place(
        run=str(directory.path),
        home=str(home / launch.working_dir) if launch.working_dir else str(home),
        plan=str(file.resolve()),
        python=shutil.which(options.python) or options.python,
        rendezvous=options.rendezvous,
        container=bool(launch.image),
        mounts=(checkpoint,) if checkpoint.startswith("/") else (),
        options=(*(f"{name}={value}" for name, value in chosen.items() if value), *options.more),
    )


def _check_directory(plan: TrainingPlan, directory: RunDirectory, door: SlurmCommands) -> None:
    """Refuse a directory in which another job runs, or that holds the checkpoints of another training."""
    before = runfile.read(directory.path)
    job = door.job(before.job_id) if before and before.job_id else None
    if job is not None and job.live:
        remedy = (
            f"job {job.job_id} trains there ({job.state.lower()}); scancel it first, or give another --dir"
        )
        raise InputError("run directory", value=str(directory.path), remedy=remedy)
    if not directory.plan.exists():
        return
    old = load(directory.plan)
    for name in ("model", "workload"):
        if getattr(old.spec, name) != getattr(plan.spec, name):
            remedy = f"differs from the run in {directory.path}; give another --dir"
            raise InputError(f"spec.{name}", value="changed", remedy=remedy)


def _submit(
    fitted: Fitted,
    place: Place,
    text: str,
    *,
    directory: RunDirectory,
    door: SlurmCommands,
    environment: Mapping[str, str],
) -> int:
    """Write what the job reads, submit, and note the job's number."""
    directory.path.mkdir(parents=True, exist_ok=True)
    worker = worker_of(fitted, place)
    for name, content in worker.files.items():
        (directory.path / name).write_text(content)
    batch = directory.path / _SCRIPT
    batch.write_text(text)
    job = _number(door.slurm.run("sbatch", "--parsable", str(batch), environment=_inherited(environment)))
    directory.plan.write_text(dump(fitted.plan))
    runfile.write(directory.path, _record(fitted, worker, job, str(place.plan)))
    return job


def _inherited(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in _OURS}


def _number(said: str) -> int:
    """The job that sbatch --parsable tells: NUMBER or NUMBER;CLUSTER, in its last line."""
    number = said.strip().splitlines()[-1].split(";")[0] if said.strip() else ""
    if not number.isdigit():
        raise SlurmError("sbatch", f"told no job: {one_line(said)}")
    return int(number)


def _record(fitted: Fitted, worker: WorkerSpec, job: int, plan: str) -> runfile.RunFile:
    fewest_nodes, most_nodes = elastic_nodes(fitted, worker)
    now_s = time.time()
    deadline_s = sizing.deadline_s(fitted.plan, now=dt.datetime.fromtimestamp(now_s, dt.UTC))
    return runfile.RunFile(
        job_id=job,
        plan=plan,
        partition=fitted.pool.partition,
        gres=fitted.pool.gres,
        gpu=fitted.pool.gpu,
        nodes=fitted.nodes,
        node_gpus=fitted.node_gpus,
        node_cores=fitted.cores,
        elastic=worker.elastic.in_place,
        fewest_nodes=fewest_nodes,
        most_nodes=most_nodes,
        layout=layout_values(fitted.option.layout),
        batch_sequences=worker.workload.global_batch_sequences,
        batch_tokens=float(worker.workload.global_batch_sequences * worker.workload.sequence_tokens),
        step_s=fitted.option.step_s,
        checkpoint_interval_s=worker.checkpoint_interval_s if worker.checkpoint_path else None,
        submitted_at_s=now_s,
        deadline_at_s=None if deadline_s is None else now_s + deadline_s,
    )
