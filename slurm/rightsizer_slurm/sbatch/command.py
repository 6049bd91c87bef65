"""`rightsizer sbatch`: sizes a plan, or a batch script with a rightsizer comment, and submits it.

Exit codes: 0 submitted (or printed, or complete already), 2 bad input or Slurm refused, 3 no plan.
"""

import datetime as dt
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rightsizer_api import dump, load, sizing
from rightsizer_api.placeholders import layout_values
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.untrusted_text import one_line, read_bytes
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.explain import verdict
from rightsizer_engine.search.types import NoPlan
from rightsizer_engine.units import parse_duration_s
from rightsizer_engine.values import immutable
from rightsizer_launch.running import calibration
from rightsizer_launch.running.run_folder import RunDirectory
from rightsizer_launch.worker.progress import replace_text
from rightsizer_launch.worker_spec import WorkerSpec, target_of
from rightsizer_slurm.cluster import accounting_limits, config, runfile, snapshot
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.comment import is_ours
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.pools import Pool, pools
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError, settings
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.cluster.user_names import user_name
from rightsizer_slurm.sbatch import containers
from rightsizer_slurm.sbatch.batch_script import (
    BatchSettings,
    decision,
    elastic_nodes,
    script,
    worker_of,
)
from rightsizer_slurm.sbatch.directives import directives, overrides, request_of, requeues
from rightsizer_slurm.submit.placement import AtLimit, Placement, PlacementLimits, fit
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, SizingVerdict
from rightsizer_slurm.submit.response import respond

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
"""Variables that would override the script; the others (account, QOS ...) stay the user's."""


@immutable
class SbatchOptions:
    """Options beside the plan.

    `nodes` and `time` (a duration) are upper bounds; `directory` holds the run (default runs/NAME); `python`
    is the nodes' interpreter with rightsizer; `rendezvous` is host:port of an external store; `more` go
    to sbatch unchanged.
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


@immutable
class SiteSnapshot:
    """The cluster, the site's file if it is readable, and accounting's limits: read once for a submit."""

    cluster: SlurmCluster
    config: SiteConfig
    limits: accounting_limits.AccountingLimits


def submit(
    file: Path, options: SbatchOptions, *, say: Callable[[str], None], slurm: Slurm | None = None
) -> int:
    """Submit a plan, or a batch script with a rightsizer comment."""
    if read_bytes(file, field="FILE").startswith(b"#!"):
        return submit_script(file, options, say=say, slurm=slurm)
    return submit_plan(file, options, say=say, slurm=slurm)


def submit_script(
    file: Path,
    options: SbatchOptions,
    *,
    say: Callable[[str], None],
    slurm: Slurm | None = None,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Size a user's batch script by its comment, within its #SBATCH lines, and submit it."""
    text = read_bytes(file, field="FILE").decode(errors="replace")
    header = directives(text)
    if not is_ours(header.get("comment", "")):
        remedy = 'has no line #SBATCH --comment="rightsizer: model=... tokens=..."; add one, or pass a plan'
        raise InputError("FILE", value=str(file), remedy=remedy)
    slurm = slurm or Slurm()
    response = _response(_script_request(text, header, options, environment), read_site(slurm))
    if response.verdict is not SizingVerdict.OK:
        say(response.say.replace("; the job is submitted unchanged", ""))
        return _NO_PLAN
    command = (
        "--parsable",
        *overrides(response.fields, header),
        *_account_flags(options),
        *options.more,
        str(file),
    )
    if options.dry_run:
        say(f"# {response.say}\n{shlex.join(('sbatch', *command))}")
        return 0
    inherited = _inherited(environment) | dict(response.variables)
    job = _sbatch(slurm, *command, environment=inherited)
    say(f"job {job}: {response.say}")
    say(f"next: squeue --jobs={job}; rightsizer slurm report")
    return 0


def _script_request(
    text: str, header: Mapping[str, str], options: SbatchOptions, environment: Mapping[str, str]
) -> SizingRequest:
    """The plugin's request for a script, within the options."""
    request = request_of(header, partition=options.partition, account=options.account, time=options.time)
    if options.nodes is not None:
        request = replace(request, max_nodes=min(options.nodes, request.max_nodes or options.nodes))
    return replace(
        request,
        user=user_name(os.getuid()),
        account=request.account or environment.get("SBATCH_ACCOUNT", ""),
        qos=options.qos or header.get("qos", "") or environment.get("SBATCH_QOS", ""),
        requeues=1 if requeues(text) else None,
    )


def _response(request: SizingRequest, site: SiteSnapshot) -> SizingResponse:
    """The response of a daemon without modes: who runs this command wants a size."""
    return respond(
        request,
        cluster=site.cluster,
        site=SiteConfig(gpus=site.config.gpus),
        now=dt.datetime.now(dt.UTC),
        plan_of_file=lambda path: load(Path(path)),
        limits=site.limits,
    )


def submit_plan(
    file: Path,
    options: SbatchOptions,
    *,
    say: Callable[[str], None],
    slurm: Slurm | None = None,
    environment: Mapping[str, str] = os.environ,
    submitted: Callable[[Placement, int], None] = lambda _placed, _job: None,
) -> int:
    """Size and submit a plan file; the exit code. `submitted` gets the size and the job's number."""
    plan = load(file)
    target_of(plan)  # refuses a command that cannot be launched, before anything is sized
    backend = SlurmCommands(slurm)
    directory = RunDirectory(path=(options.directory or Path("runs") / plan.metadata.name).resolve())
    if directory.done:
        say(f"{plan.metadata.name} is already complete ({directory.path}); use another --dir to start over")
        return 0
    _check_directory(plan, directory, backend)
    site = read_site(backend.slurm)
    placed = fit_plan(plan, allowed_pools(plan, options, site, environment), options, site)
    if isinstance(placed, NoPlan):
        say(verdict(placed))
        return _NO_PLAN
    batch = _batch_settings(placed, file, directory, options, slurm=backend.slurm, site=site.config)
    worker = worker_of(placed, batch)
    text = script(placed, worker, batch)
    if options.dry_run:
        say(text)
        return 0
    written = _write_files(directory, worker, text)
    job = _sbatch(backend.slurm, "--parsable", str(written), environment=_inherited(environment))
    replace_text(directory.plan, dump(placed.plan))
    runfile.write(directory.path, _record(placed, worker, job, batch.plan))
    submitted(placed, job)
    say(f"job {job}: {placed.summary}")
    say(f"next: squeue --jobs={job}; tail -f {directory.path}/slurm-{job}.out; rightsizer slurm report")
    return 0


def read_site(slurm: Slurm) -> SiteSnapshot:
    """Read the input of sizing; no limits if slurmdbd does not respond: then Slurm itself enforces them."""
    try:
        limits = accounting_limits.read(slurm)
    except SlurmError:
        limits = accounting_limits.AccountingLimits()
    conf = settings(slurm).get("SLURM_CONF", "")
    return SiteSnapshot(cluster=snapshot.read(slurm), config=config.beside(conf), limits=limits)


def allowed_pools(
    plan: TrainingPlan, options: SbatchOptions, site: SiteSnapshot, environment: Mapping[str, str]
) -> tuple[Pool, ...]:
    """The nodes that the plan may take, within the accounting limits."""
    account = options.account or environment.get("SBATCH_ACCOUNT", "")
    everywhere = pools(
        site.cluster,
        names=site.config.gpus,
        wanted=sizing.gpu_types(plan),
        partition=options.partition or environment.get("SBATCH_PARTITION", ""),
        account=account,
        node_gpus=plan.spec.resources.gpus_per_node,
    )
    allowed, _ = accounting_limits.within(
        everywhere,
        site.limits,
        partitions=site.cluster.partitions,
        user=user_name(os.getuid()),
        account=account,
        qos=options.qos or environment.get("SBATCH_QOS", ""),
    )
    return allowed


def fit_plan(
    plan: TrainingPlan, candidates: Sequence[Pool], options: SbatchOptions, site: SiteSnapshot
) -> Placement | NoPlan:
    """Size a plan on the pools that it may take."""
    limit_s = parse_duration_s(options.time, field="--time") if options.time else None
    return fit(
        sizing.resolve(plan),
        candidates,
        have=site.cluster.summary(),
        bounds=PlacementLimits(nodes=options.nodes, time_s=limit_s, at_limit=AtLimit.SAVED),
        now=dt.datetime.now(dt.UTC),
        calibration=calibration.load(),
        resizable=True,
    )


def _account_flags(options: SbatchOptions) -> tuple[str, ...]:
    chosen = {"--account": options.account, "--qos": options.qos}
    return tuple(f"{name}={value}" for name, value in chosen.items() if value)


def _batch_settings(
    placed: Placement,
    file: Path,
    directory: RunDirectory,
    options: SbatchOptions,
    *,
    slurm: Slurm,
    site: SiteConfig,
) -> BatchSettings:
    launch = placed.plan.spec.launch
    home = file.resolve().parent / (launch.working_dir or "")
    image, container = launch.image, None
    if image:
        containers.checked_image(image, home)
        container = containers.runtime_of(image, slurm.run("srun", "--help"), shutil.which)
    checkpoint = launch.checkpoint.path if launch.checkpoint else ""
    return BatchSettings(
        run=str(directory.path),
        home=str(home),
        plan=str(file.resolve()),
        python=shutil.which(options.python) or options.python,
        rendezvous=options.rendezvous,
        container=container,
        mounts=(checkpoint,) if checkpoint.startswith("/") else (),
        runs=str(site.runs or ""),
        options=(*_account_flags(options), *options.more),
    )


def _check_directory(plan: TrainingPlan, directory: RunDirectory, backend: SlurmCommands) -> None:
    """Refuse the run directory of a live job or of another training."""
    before = runfile.read(directory.path)
    job = backend.job(before.job_id) if before and before.job_id else None
    if job is not None and job.live:
        remedy = f"is used by job {job.job_id} ({job.state.lower()}); scancel it first, or use another --dir"
        raise InputError("run directory", value=str(directory.path), remedy=remedy)
    directory.refuse_other_training(plan, remedy="use another --dir")


def _write_files(directory: RunDirectory, worker: WorkerSpec, text: str) -> Path:
    """Write the worker's files and the batch script into the run directory; the script's path."""
    directory.path.mkdir(parents=True, exist_ok=True)
    for name, content in worker.files.items():
        replace_text(directory.path / name, content)
    replace_text(directory.path / _SCRIPT, text)
    return directory.path / _SCRIPT


def _inherited(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in _OURS}


def _sbatch(slurm: Slurm, *arguments: str, environment: Mapping[str, str]) -> int:
    """Run sbatch --parsable; the job's number, which is in the last line: NUMBER or NUMBER;CLUSTER."""
    output = slurm.run("sbatch", *arguments, environment=environment)
    number = output.strip().splitlines()[-1].split(";")[0] if output.strip() else ""
    if not number.isdigit():
        raise SlurmError("sbatch", f"printed no job number: {one_line(output)}")
    return int(number)


def _record(placed: Placement, worker: WorkerSpec, job: int, plan: str) -> runfile.RunFile:
    fewest_nodes, most_nodes = elastic_nodes(placed, worker)
    now_s = time.time()
    deadline_s = sizing.deadline_s(placed.plan, now=dt.datetime.fromtimestamp(now_s, dt.UTC))
    return runfile.RunFile(
        job_id=job,
        plan=plan,
        partition=placed.pool.partition,
        gres=placed.pool.gres,
        gpu=placed.pool.gpu,
        nodes=placed.nodes,
        node_gpus=placed.node_gpus,
        node_cores=placed.cores,
        elastic=worker.elastic.in_place,
        fewest_nodes=fewest_nodes,
        most_nodes=most_nodes,
        layout=layout_values(placed.option.layout),
        batch_sequences=worker.workload.global_batch_sequences,
        batch_tokens=float(worker.workload.global_batch_sequences * worker.workload.sequence_tokens),
        step_s=placed.option.step_s,
        checkpoint_interval_s=worker.checkpoint_interval_s if worker.checkpoint_path else None,
        submitted_at_s=now_s,
        deadline_at_s=None if deadline_s is None else now_s + deadline_s,
        first_look_s=placed.sized.staging.look_s if placed.sized.staging else None,
        decision=decision(placed),
    )
