"""Valid values of any magnitude together: a few tokens or 10^18, 10^15 tokens/s or a training that stalls."""

import copy
import datetime as dt
import functools
import json
from collections.abc import Callable
from random import Random
from typing import Any

from bench.fuzz.inputs import Target
from bench.fuzz.kubernetes import INVENTORY, METADATA, NOW, OWNER, SIZED, TRAINER
from bench.fuzz.slurm import PLAN, RUN, START, STEP, looked_at

from rightsizer_api import loads, reporting, sizing
from rightsizer_cli.output.plan_state import why
from rightsizer_cli.requests.log_rate import rate_of
from rightsizer_engine.catalog import lookup
from rightsizer_engine.resize.existing_job import MeasuredJob, advise
from rightsizer_engine.search.size import size
from rightsizer_launch.running.run_totals import RunTotals
from rightsizer_launch.worker.progress import Record
from rightsizer_local.live_view import Expectation, status_rows
from rightsizer_operator.measure.gauges import plan_gauges
from rightsizer_operator.reconcile.reconcile import reconcile
from rightsizer_operator.values.actions import PatchStatus
from rightsizer_operator.values.snapshot import AttemptJob, ReportedProgress, Snapshot
from rightsizer_slurm.cluster.comment import parse, plan_of
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.snapshot import Partition, SlurmCluster, SlurmNode
from rightsizer_slurm.submit.protocol import SizingRequest, SizingVerdict
from rightsizer_slurm.submit.response import respond

TOKENS = ("1", "1k", "10M", "100B", "15T", "1000T", "1000000T")
DEADLINES = ("", "1m", "72h", "400d", "36000d")
MODELS = ("gpt2", "llama-3.1-8b", "llama-3.1-405b")
MOST_MINUTES = 2**31 // 60
"""Slurm counts the seconds of a time limit in 32 bits."""
SLURM = SlurmCluster(
    partitions=(Partition(name="h100", nodes=("n1",), default=True),),
    nodes=(SlurmNode(name="n1", gpu="h100", gpus=8, cpus=64),),
)


def anything(random: Random, least: int = -320, most: int = 300) -> float:
    """A number of any magnitude: as likely 1e-9 as 1e9; sometimes 0."""
    return 0.0 if random.random() < 0.1 else 10.0 ** random.uniform(least, most)


def running_plan(random: Random) -> Snapshot:
    """A plan that was sized for any duration, some of its workers ready, at any rate."""
    raw, tokens = copy.deepcopy(SIZED), random.choice(TOKENS)
    raw["spec"]["workload"]["tokens"] = tokens
    raw["spec"]["deadline"] = {"finishWithin": random.choice(DEADLINES[1:])}
    raw["status"]["sizing"]["finishSeconds"] = anything(random)
    raw["status"]["sizing"]["stepSeconds"] = 10.0 ** random.uniform(-9, 300)
    raw["status"]["attempt"] = raw["status"]["attempt"] | {"startedAt": "2026-11-21T12:00:00Z"}
    metadata = METADATA | {"resourceVersion": "7", "ownerReferences": [OWNER]}
    spec = {"parallelism": 2, "suspend": False, "template": {"spec": {"containers": [TRAINER]}}}
    job = {"metadata": metadata, "spec": spec, "status": {"ready": random.choice((0, 1, 2))}}
    said = ReportedProgress(tokens=anything(random, 0, 18), tokens_per_s=anything(random, -320, 12), step=1)
    return Snapshot(
        plan=raw,
        inventory=INVENTORY,
        now=NOW + dt.timedelta(seconds=anything(random, 0, 9)),
        jobs=(AttemptJob.of(job),),
        progress=random.choice((None, said, said)),
    )


def reconciled(snapshot: Snapshot) -> None:
    """The plan's status, gauges, and output of `kubectl rightsizer why`."""
    actions = reconcile(snapshot)
    status = next((each.status for each in actions if isinstance(each, PatchStatus)), snapshot.status)
    plan = {**snapshot.plan, "status": json.loads(json.dumps(dict(status), allow_nan=False))}
    plan_gauges(plan)
    why(plan, (), snapshot.now)


def slurm_run(random: Random) -> dict[str, str]:
    """A run directory with times, rates and counts of any magnitude."""
    run = RUN | {"step_s": anything(random), "batch_tokens": anything(random, 0, 18)}
    run["deadline_at_s"] = random.choice((None, anything(random)))
    run["checkpoint_interval_s"] = anything(random)
    step = STEP | {"tokens": anything(random), "step_s": anything(random), "data_wait_s": anything(random)}
    step["time"] = anything(random)
    start = START | {"time": anything(random)}
    plan = PLAN.replace("tokens: 10B", f"tokens: {random.choice(TOKENS)}")
    files = {"slurm.json": run, "progress.jsonl": step, "sizes.jsonl": start}
    return {name: json.dumps(document) + "\n" for name, document in files.items()} | {"plan.yaml": plan}


def comment(random: Random) -> str:
    """A request of any size."""
    deadline = random.choice(DEADLINES)
    words = f"model={random.choice(MODELS)} method=lora tokens={random.choice(TOKENS)}"
    return f"rightsizer: {words}" + (f" deadline={deadline}" if deadline else "")


@functools.cache
def sized_on_slurm(text: str) -> None:
    """The daemon's response on a partition without a time limit."""
    said = respond(
        SizingRequest(comment=text), cluster=SLURM, site=SiteConfig(), now=NOW, plan_of_file=lambda _: None
    )  # fmt: skip
    minutes = int(said.fields.get("time_limit", 1))
    assert 0 < minutes < MOST_MINUTES, minutes
    assert said.verdict in {SizingVerdict.OK, SizingVerdict.REFUSE}, said.say


@functools.cache
def sized(text: str) -> None:
    """The plan's report, as each --json and status has it."""
    request = sizing.resolve(plan_of(parse(text))).request(now=NOW, clusters=(lookup.cluster("H100"),))
    json.loads(reporting.report(size(request)).model_dump_json())


def local_run(random: Random) -> tuple[RunTotals, Expectation]:
    """Five steps of one length, and the prediction."""
    step_s, tokens = anything(random), anything(random)
    records = [
        Record(event="step", time=n * step_s, step=n, tokens=n * tokens, step_s=step_s, world=1, attempt=1)
        for n in range(1, 6)
    ]  # fmt: skip
    deadline_s = random.choice((None, anything(random)))
    expected = Expectation(
        target_tokens=anything(random, 0, 18),
        tokens_per_s=anything(random),
        deadline_s=deadline_s,
        began_s=anything(random, 0, 10),
    )
    return RunTotals().add(records), expected


def log(random: Random) -> str:
    """A line with a rate, with any number of digits."""
    value = 10.0 ** random.randrange(-320, 300)
    number = random.choice((f"{value:g}", f"{value:f}", "9" * random.randrange(1, 400)))
    return random.choice(("tps: %s", "tokens/s: %s", ", %ss/it", ", %sit/s", "dt %s ms")) % number


def advised(text: str) -> None:
    """The advice for a job with that rate."""
    judged(rate_of(text, batch_tokens=65536.0, gpus=8).tokens_per_s)


@functools.cache
def judged(tokens_per_s: float) -> None:
    """The advice for a job with that step time."""
    request = sizing.resolve(loads(PLAN)).request(now=NOW, clusters=(lookup.cluster("H100"),))
    advise(
        request,
        MeasuredJob(
            gpus=4,
            tokens_per_s=tokens_per_s,
            tokens_done=0.0,
            window_s=3600.0,
            checkpoint_interval_s=600.0,
            deadline_left_s=86_400.0,
        ),
    )


def _target(name: str, generate: Callable[[Random], Any], parse: Callable[[Any], object]) -> Target:
    return Target(name=f"magnitudes: {name}", generate=generate, parse=parse)


TARGETS: tuple[Target, ...] = (
    _target("running plan", running_plan, reconciled),
    _target("run directory of a job", slurm_run, looked_at),
    _target("job of a comment", comment, sized_on_slurm),
    _target("plan", comment, sized),
    _target("run on this machine", local_run, lambda run: status_rows(run[0], 0, run[1], now_s=1e9)),
    _target("rate of a log", log, advised),
)
