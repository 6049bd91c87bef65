"""Trains one plan on this machine under supervision and keeps its attempts in run.json."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from rightsizer_api.plan import TrainingPlan
from rightsizer_engine.search.reasons import layout_text
from rightsizer_engine.search.types import Option
from rightsizer_engine.units import format_duration, parse_duration_s
from rightsizer_launch.running.run_folder import RunDirectory
from rightsizer_launch.running.run_totals import RunTotals
from rightsizer_launch.worker.progress import replace_text
from rightsizer_launch.worker.restart_budget import RestartBudget
from rightsizer_launch.worker_spec import Directories, LaunchSize, worker_spec
from rightsizer_local.live_view import Expectation, View
from rightsizer_local.local_sizing import Sized
from rightsizer_local.machine import Machine
from rightsizer_local.processes import JobSpec, LocalJob
from rightsizer_local.resize import LocalResizer
from rightsizer_local.supervisor import Finished, StopFlag, Until, stop_on_signals, supervise


def job_spec(
    plan: TrainingPlan,
    here: Machine,
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
        LaunchSize.of(option),
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


def train(
    plan: TrainingPlan,
    spec: JobSpec,
    sized: Sized,
    resizer: LocalResizer,
    *,
    directory: RunDirectory,
    attempts: list[dict[str, Any]],
    totals: RunTotals,
    console: Console,
    until: Callable[[RunTotals], str],
) -> Finished:
    """Supervise the job and keep run.json up to date."""

    def started(job: LocalJob) -> None:
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
