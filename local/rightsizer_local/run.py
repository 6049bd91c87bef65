"""`rightsizer run`: size a plan to this machine, train it with torchrun, compare it with its prediction.

Exit codes: 0 complete, 1 gave up, 2 bad input, 3 no plan, 130 stopped (saved; a rerun resumes).
"""

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from rightsizer_api import dump, load, reporting, sizing
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.quantities import later
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.explain import verdict
from rightsizer_engine.search.reasons import layout_text, opening_text
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import NoPlan, Option, Plan, Request, Staging
from rightsizer_engine.units import format_duration, parse_duration_s
from rightsizer_engine.values import immutable
from rightsizer_launch.running import calibration
from rightsizer_launch.running.run_folder import RunDirectory, held, worker_error
from rightsizer_launch.running.run_totals import RunTotals
from rightsizer_launch.worker.progress import replace_text
from rightsizer_launch.worker.restart_budget import RestartBudget
from rightsizer_launch.worker_spec import Directories, Size, target_of, worker_spec
from rightsizer_local import machine, report
from rightsizer_local.live_view import Expectation, View
from rightsizer_local.processes import Job, JobSpec
from rightsizer_local.resize import Resizer, history_of_attempts, scaling_of, tuning_of
from rightsizer_local.summary import summary
from rightsizer_local.supervisor import Ending, Finished, StopFlag, Until, stop_on_signals, supervise

EXIT_CODES = {Ending.DONE: 0, Ending.FAILED: 1, Ending.STOPPED: 130}
_NO_PLAN = 3
_START_S = 20.0
"""Start-up on this machine until one is measured: no queue and no image, but torch's import. A guess."""
_SETTLE_S = 600.0
"""Time at a size before a decision. A choice: as in the other executors."""


@immutable
class Options:
    """The command's options.

    `workers` overrides the search; `directory` holds the run (default runs/NAME); `anyway` runs even if the
    deadline cannot be met; `fresh` sets an earlier run aside; `measure` measures the machine anew. A size is
    measured for at least `resize_after_s` before it is judged, half of it after its warm-up. None: until the
    first look of a plan that opens at its likely size, else ten minutes. The run saves and stops as soon as
    `until` gives a reason. `record` adds its measurements to the calibration.
    """

    workers: int | None = None
    directory: Path | None = None
    anyway: bool = False
    fresh: bool = False
    measure: bool = False
    resize_after_s: float | None = None
    until: Callable[[RunTotals], str] = lambda _totals: ""
    record: bool = True


@immutable
class Sized:
    """The engine's answer, and the option of it that runs."""

    answer: Plan | NoPlan
    option: Option
    workload: Workload
    deadline_s: float | None

    @property
    def staging(self) -> Staging | None:
        """The looks and the reserve of a job with an opening size."""
        return self.answer.staging if isinstance(self.answer, Plan) else None


def run(
    source: Path | TrainingPlan,
    options: Options | None = None,
    *,
    console: Console | None = None,
    detect: Callable[..., machine.Machine] = machine.detect,
) -> int:
    """Run a plan (its file, or the plan itself) on this machine to its end; return the exit code.

    A file's relative paths start at its folder. `detect(again=)` describes this machine. InputError and
    UnsupportedError say what is wrong with the input.
    """
    options, console = options or Options(), console or Console(highlight=False)
    plan = load(source) if isinstance(source, Path) else source
    home = source.resolve().parent if isinstance(source, Path) else Path.cwd()
    target_of(plan)  # refuses a command that cannot be launched, before anything is measured
    path = (options.directory or Path("runs") / plan.metadata.name).resolve()
    if options.fresh:
        with held(path) as directory:  # never moves a run that another process holds
            old = directory.set_aside() if directory.attempts() else None
        if old is not None:
            console.print(f"the earlier run is kept in {old}", soft_wrap=True)
    with held(path) as directory:
        directory.refuse_other_training(plan, remedy="--fresh starts over, --dir names another place")
        if directory.done:
            console.print(f"{plan.metadata.name} is complete already ({path}); --fresh starts over")
            return 0
        return _run(plan, home, directory, options, console, here=detect(again=options.measure))


def _run(
    plan: TrainingPlan,
    home: Path,
    directory: RunDirectory,
    options: Options,
    console: Console,
    *,
    here: machine.Machine,
) -> int:
    if options.workers is not None and not 1 <= options.workers <= here.workers:
        remedy = f"this machine has room for 1 to {here.workers}"
        raise InputError("--workers", value=options.workers, remedy=remedy)
    attempts = directory.attempts()
    totals = directory.totals()
    console.print(f"this machine: {here.description}", soft_wrap=True)
    if plan.spec.resources.gpu_types and not here.cuda:
        console.print(f"(the plan's {', '.join(plan.spec.resources.gpu_types)} are not here)")
    sized = sized_here(plan, here, options, attempts, totals)
    console.print(_local_verdict(verdict(sized.answer), here), soft_wrap=True)
    if sized.staging:
        console.print(opening_text(sized.option, sized.staging), soft_wrap=True)
    if isinstance(sized.answer, NoPlan) and not options.anyway and not attempts:
        console.print("not started; --anyway runs the nearest all the same", soft_wrap=True)
        return _NO_PLAN
    replace_text(directory.plan, dump(plan))
    spec = job_spec(plan, here, sized.option, directory, home, attempt=len(attempts) + 1)
    resizer = Resizer(
        plan=plan,
        option=sized.option,
        tuning=tuning_of(settle_s=_settle_s(options, sized.staging)),
        reserve_gpus=sized.staging.reserve_gpus if sized.staging else None,
        target_tokens=sized.workload.tokens,
        deadline_s=None if sized.deadline_s is None else time.time() + sized.deadline_s,
        history=history_of_attempts(attempts),
        scaling=lambda option: scaling_of(sized.answer.request, option, here.clusters),
        job=lambda option: job_spec(plan, here, option, directory, home, attempt=1),
    )
    finished = _train(
        plan,
        spec,
        sized,
        resizer,
        directory=directory,
        attempts=attempts,
        totals=totals,
        console=console,
        until=options.until,
    )
    document = _report(plan, sized, directory, finished, resizer, words=here.description)
    if finished.ending is Ending.FAILED:
        console.print(f"gave up: {finished.reason}. The worker's last error:", style="bold", soft_wrap=True)
        console.print(worker_error(finished.last.logs), soft_wrap=True, markup=False)
    summary(document, console)
    if options.record:
        _record_steps(document, console)
    console.print(f"report: {directory.path / 'report.json'}", soft_wrap=True)
    return EXIT_CODES[finished.ending]


def _settle_s(options: Options, staging: Staging | None) -> float:
    """Seconds that a size trains before a decision."""
    return options.resize_after_s or (staging.look_s if staging else _SETTLE_S)


def _record_steps(document: Mapping[str, Any], console: Console) -> None:
    """Record the measured steps for later plans; a file that cannot be written does not fail the run."""
    try:
        if calibration.record(document):
            console.print("recorded the measured steps for later plans (rightsizer calibrate --show)")
    except InputError as error:
        console.print(f"could not record the measured steps: {error}", soft_wrap=True)


def _local_verdict(text: str, here: machine.Machine) -> str:
    """The engine's verdict; without GPUs its devices are workers."""
    return text if here.cuda else text.replace("one GPU", "one worker")


def sized_here(
    plan: TrainingPlan,
    here: machine.Machine,
    options: Options | None = None,
    attempts: Sequence[Mapping[str, Any]] = (),
    totals: RunTotals | None = None,
) -> Sized:
    """Size the rest of the training to this machine; the batch of earlier attempts stays."""
    options, totals, now = options or Options(), totals or RunTotals(), time.time()
    first = float(attempts[0]["startedAt"]) if attempts else now
    began = dt.datetime.fromtimestamp(first, dt.UTC)
    asked = sizing.resolve(plan).request(now=began, clusters=here.clusters)
    workload = asked.workload
    if attempts:
        workload = replace(workload, global_batch_sequences=int(attempts[0]["globalBatchSequences"]))
    left = None if asked.deadline_s is None else max(1.0, asked.deadline_s - (now - first))
    tokens = max(1.0, workload.tokens - totals.tokens)
    asked = replace(
        asked,
        calibration=calibration.load(),
        workload=replace(workload, tokens=tokens),
        deadline_s=left,
        gpu_counts=(options.workers,) if options.workers else asked.gpu_counts,
        min_gpus=1 if options.workers else asked.min_gpus,
        max_gpus=None if options.workers else asked.max_gpus,
        batch_tolerance=0.0 if attempts else asked.batch_tolerance,
        spare_nodes=0,
        reliability=replace(asked.reliability, start_s=_START_S),
    )
    asked = replace(asked, clusters=_eligible(asked))
    answer = size(asked)
    option = _option(answer, asked)
    workload = replace(workload, global_batch_sequences=option.global_batch_sequences)
    return Sized(answer=answer, option=option, workload=workload, deadline_s=left)


def _eligible(asked: Request) -> tuple[Cluster, ...]:
    """The clusters that may be used in full, so that a refusal names no others."""
    if len(asked.clusters) == 1:
        return asked.clusters
    least, most = asked.min_gpus, asked.max_gpus or asked.clusters[-1].max_gpus
    fitting = [cluster for cluster in asked.clusters if least <= cluster.max_gpus <= most]
    if asked.gpu_counts:
        fitting = [cluster for cluster in fitting if cluster.max_gpus in asked.gpu_counts]
    return tuple(fitting) or asked.clusters[-1:]


def _option(answer: Plan | NoPlan, asked: Request) -> Option:
    """The plan's option; without a plan the nearest that this machine can run."""
    if isinstance(answer, Plan):
        return answer.option
    most = max(cluster.max_gpus for cluster in asked.clusters)
    fitting = [option for option in answer.nearest if option.gpus <= most]
    if not fitting:
        raise InputError("plan", value=answer.binding, remedy=f"cannot run on this machine: {answer.reason}")
    return fitting[0]


def job_spec(
    plan: TrainingPlan,
    here: machine.Machine,
    option: Option,
    directory: RunDirectory,
    home: Path,
    *,
    attempt: int,
) -> JobSpec:
    """The job of one size; its framework's files are written."""
    path = str(directory.path)
    worker = worker_spec(
        plan,
        Size.of(option),
        Directories(run=path, files=path, checkpoints=path),
        room_gpus=here.workers,
        supervised=True,
    )
    for name, text in worker.files.items():
        replace_text(directory.path / name, text)
    working_dir = plan.spec.launch.working_dir
    return JobSpec(
        name=plan.metadata.name,
        attempt=attempt,
        workers=option.gpus,
        min_workers=worker.elastic.fewest,
        program=worker.program,
        run_directory=directory.path,
        working_directory=home / working_dir if working_dir else home,
        environment=worker.environment,
        threads_per_worker=here.threads_per_worker,
        cuda=here.cuda,
        grace_s=worker.grace_s,
    )


def _train(
    plan: TrainingPlan,
    spec: JobSpec,
    sized: Sized,
    resizer: Resizer,
    *,
    directory: RunDirectory,
    attempts: list[dict[str, Any]],
    totals: RunTotals,
    console: Console,
    until: Callable[[RunTotals], str],
) -> Finished:
    """Supervise the job and keep run.json up to date."""

    def started(job: Job) -> None:
        option = resizer.option
        attempts.append(
            {
                "number": job.spec.attempt,
                "workers": option.gpus,
                "layout": layout_text(option.layout),
                "globalBatchSequences": sized.workload.global_batch_sequences,
                "predicted": {"tokensPerSecond": option.tokens_per_s, "stepSeconds": option.step_s},
                "startedAt": job.began,
                "fromStep": totals.step,
                "failures": 0,
                **resizer.last_change(job.spec.workers),
            }
        )
        directory.write_attempts(attempts)

    expected = Expectation(
        target_tokens=sized.workload.tokens,
        tokens_per_s=sized.option.tokens_per_s,
        deadline_s=sized.deadline_s,
        began_s=time.time(),
    )
    limits = plan.spec.launch.restarts
    budget = RestartBudget(
        limit=limits.limit, within_s=parse_duration_s(limits.within), step=totals.best_step
    )
    stop = StopFlag()
    console.print(
        f"starting {sized.option.gpus} worker(s); logs in {spec.logs.parent}; "
        f"Ctrl-C saves and stops (up to {format_duration(spec.grace_s)})",
        soft_wrap=True,
    )
    with stop_on_signals(stop), View(console, expected) as view:
        resizer.note = view.note
        watcher = Until(view, stop, until)
        finished = supervise(
            spec, budget=budget, watcher=watcher, stop=stop, totals=totals, adviser=resizer, started=started
        )
    attempts[-1] |= {"failures": finished.failures, "endedAt": time.time(), "ending": str(finished.ending)}
    directory.write_attempts(attempts)
    return finished


def _report(
    plan: TrainingPlan,
    sized: Sized,
    directory: RunDirectory,
    finished: Finished,
    resizer: Resizer,
    *,
    words: str,
) -> dict[str, Any]:
    attempts, totals = directory.attempts(), directory.totals()
    first = dt.datetime.fromtimestamp(round(min(totals.launched_s.values())), dt.UTC)
    deadline_s = sizing.deadline_s(plan, now=first)
    outcome = report.RunOutcome(
        plan=plan,
        sizing=reporting.report(sized.answer),
        machine=words,
        ending=finished.ending,
        reason=finished.reason,
        totals=totals,
        attempts=attempts,
        tokens_per_step=float(sized.workload.global_batch_sequences * sized.workload.sequence_tokens),
        target_tokens=sized.workload.tokens,
        deadline=None if deadline_s is None else later(first, deadline_s),
        now=dt.datetime.now(dt.UTC).replace(microsecond=0),
        decision=resizer.decision,
        decided_s=resizer.decided_s,
        observations=calibration.observed(
            sized.answer.request,
            resizer.option,
            run=f"{plan.metadata.name}/{attempts[-1]['startedAt']:.0f}/{attempts[-1]['number']}",
            steps=finished.totals.steps,
            attempt=int(attempts[-1]["number"]),
            start_s=finished.totals.start_s(int(attempts[-1]["number"])),
            checkpoint_s=finished.totals.checkpoint_s,
        ),
    )
    return report.write(directory.path, outcome)
