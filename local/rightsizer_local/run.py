"""`rightsizer run`: size a plan to this machine, train it with torchrun, compare it with its prediction.

Exit codes: 0 complete, 1 gave up, 2 bad input, 3 no plan, 130 stopped (saved; a rerun resumes).
"""

import datetime as dt
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from rightsizer_api import dump, load, reporting, sizing
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.quantities import later
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.explain import verdict
from rightsizer_engine.search.reasons import opening_text
from rightsizer_engine.search.types import NoPlan, Staging
from rightsizer_engine.values import immutable
from rightsizer_launch.running import calibration
from rightsizer_launch.running.run_folder import RunDirectory, held, worker_error
from rightsizer_launch.running.run_totals import RunTotals
from rightsizer_launch.worker.progress import replace_text
from rightsizer_launch.worker_spec import target_of
from rightsizer_local import machine, report
from rightsizer_local.local_sizing import Sized, sized_here
from rightsizer_local.resize import LocalResizer, history_of_attempts, scaling_of, tuning_of
from rightsizer_local.summary import summary
from rightsizer_local.supervisor import Ending, Finished
from rightsizer_local.training import job_spec, train

EXIT_CODES = {Ending.DONE: 0, Ending.FAILED: 1, Ending.STOPPED: 130}
_NO_PLAN = 3
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
    sized = sized_here(plan, here, workers=options.workers, attempts=attempts, totals=totals)
    console.print(_local_verdict(verdict(sized.response), here), soft_wrap=True)
    if sized.staging:
        console.print(opening_text(sized.option, sized.staging), soft_wrap=True)
    if isinstance(sized.response, NoPlan) and not options.anyway and not attempts:
        console.print("not started; --anyway runs the nearest all the same", soft_wrap=True)
        return _NO_PLAN
    replace_text(directory.plan, dump(plan))
    spec = job_spec(plan, here, sized.option, directory, home, attempt=len(attempts) + 1)
    resizer = LocalResizer(
        plan=plan,
        option=sized.option,
        tuning=tuning_of(settle_s=_settle_s(options, sized.staging)),
        reserve_gpus=sized.staging.reserve_gpus if sized.staging else None,
        target_tokens=sized.workload.tokens,
        deadline_s=None if sized.deadline_s is None else time.time() + sized.deadline_s,
        history=history_of_attempts(attempts),
        scaling=lambda option: scaling_of(sized.response.request, option, here.clusters),
        job=lambda option: job_spec(plan, here, option, directory, home, attempt=1),
    )
    finished = train(
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


def _report(
    plan: TrainingPlan,
    sized: Sized,
    directory: RunDirectory,
    finished: Finished,
    resizer: LocalResizer,
    *,
    words: str,
) -> dict[str, Any]:
    attempts, totals = directory.attempts(), directory.totals()
    first = dt.datetime.fromtimestamp(round(min(totals.launched_s.values())), dt.UTC)
    deadline_s = sizing.deadline_s(plan, now=first)
    outcome = report.RunOutcome(
        plan=plan,
        sizing=reporting.report(sized.response),
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
            sized.response.request,
            resizer.option,
            run=f"{plan.metadata.name}/{attempts[-1]['startedAt']:.0f}/{attempts[-1]['number']}",
            steps=finished.totals.steps,
            attempt=int(attempts[-1]["number"]),
            start_s=finished.totals.start_s(int(attempts[-1]["number"])),
            checkpoint_s=finished.totals.checkpoint_s,
        ),
    )
    return report.write(directory.path, outcome)
