"""Random inputs of Slurm's daemon, plugins and monitor: output, comments, scripts, run files, requests."""

import json
import tempfile
from collections.abc import Callable
from os import getuid
from pathlib import Path
from random import Random
from typing import Any

from bench.fuzz.inputs import Target, damaged, damaged_text, text

from rightsizer_api import loads
from rightsizer_launch.running.marks import marks_of
from rightsizer_launch.running.readings import reading_of
from rightsizer_launch.worker.progress import Record
from rightsizer_slurm.cluster import accounting_limits, comment, config, hostlist, jobs, runfile, snapshot
from rightsizer_slurm.cluster.backend_commands import jobs_of_json
from rightsizer_slurm.monitor import report, size_records, size_request
from rightsizer_slurm.monitor.decide import ReportRow
from rightsizer_slurm.monitor.inspection import monitored_job
from rightsizer_slurm.monitor.intent_log import IntentLog
from rightsizer_slurm.monitor.metrics import SweepMetrics
from rightsizer_slurm.monitor.monitor import Monitor
from rightsizer_slurm.monitor.settings import MonitorSettings
from rightsizer_slurm.sbatch.directives import directives, request_of
from rightsizer_slurm.submit.protocol import SizingResponse, SizingVerdict, parse_request, response_text

NODE = (
    "NodeName=n1 Arch=x86_64 CPUEfctv=64 CPUTot=64 ActiveFeatures=h100,ib Gres=gpu:h100:8(S:0-1),nic:2"
    " GresUsed=gpu:h100:3(IDX:0-2) OS=Linux 6.1 RealMemory=500000"
    " State=MIXED+PLANNED Reason=broken State=IDLE"
)
PARTITION = (
    "PartitionName=h100 AllowGroups=ALL AllowAccounts=nlp,cv AllowQos=ALL Default=YES QoS=N/A"
    " DefaultTime=01:00:00 MaxNodes=4 MaxTime=7-00:00:00 MinNodes=0 Nodes=n[1-2,7] State=UP"
)
QOS = "small|OverPartQOS|gres/gpu=8|gres/gpu:h100=2|||7-00:00:00\n"
ASSOC = "nlp|ada|h100|root|small|gres/gpu=8|node=4|1-00:00:00\n"
COMMENT = (
    'rightsizer: model=llama-3.1-8b tokens=10B deadline=72h gpu=H100,A100 layout.tp=8 plan="/a b" run=/r'
)
SCRIPT = '#!/bin/bash\n#SBATCH -N 2-4 --time=1-12:30:00 --gres=gpu\n#SBATCH --comment="x y" -p a,b\nsrun x\n'
SITE = (
    "mode = warn\nsocket = /run/x\n[partition h100]\nmode = size\n[gpus]\nodd = none\n[monitor]\nact = mail\n"
)
REQUEST = f"RIGHTSIZER 2 SIZE\ncomment={COMMENT}\nuid=7\nmin_nodes=1\ngres=gpu:h100:8\narray=1-2\nEND\n"
JOB = {
    "job_id": 7,
    "job_state": ["RUNNING"],
    "user_id": getuid(),
    "node_count": {"set": True, "infinite": False, "number": 2},
    "gres_detail": ["gpu:h100:8(IDX:0-7)"],
    "tres_req_str": "cpu=2,node=2,gres/gpu:h100=16",
    "comment": COMMENT,
    "admin_comment": "x [rightsizer/1 nodes=1]",
    "time_limit": 60,
    "array_job_id": {"number": 0},
}
PLAN = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: small}
spec:
  model: {dimensions: {layers: 4, hidden: 192, heads: 4, vocab: 256}}
  workload: {tokens: 10B, sequenceLength: 128, globalBatchSequences: 64}
  resources: {minGPUs: 1, maxGPUs: 4}
  launch: {framework: ddp, command: [train.py]}
"""
LAYOUT = {"dp": 1, "microBatch": 4, "microBatches": 16, "sharding": "none", "recompute": "none"}
RUN = {
    "job_id": 7, "gpu": "H100-SXM5-80GB", "gres": "h100", "nodes": 1, "node_gpus": 1, "node_cores": 8,
    "elastic": True, "most_nodes": 4, "layout": LAYOUT, "batch_sequences": 64, "batch_tokens": 8192.0,
    "step_s": 1.0, "deadline_at_s": 2e9, "checkpoint_interval_s": 300.0, "submitted_at_s": 1.0,
}  # fmt: skip
STEP = {
    "event": "step",
    "time": 1e9,
    "step": 1,
    "tokens": 8192.0,
    "step_s": 1.0,
    "data_wait_s": 0.1,
    "pids": [1],
}
START = {"event": "start", "job_id": 7, "restart": 0, "nodes": 1, "offset": 0, "time": 1.0, "why": ""}


class OneJob:
    """A cluster whose only job names a run directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job = jobs.SlurmJob(
            job_id=7, user_id=getuid(), states=("RUNNING",), gpus=1, nodes=1,
            comment=f"rightsizer: plan=/p run={folder}",
        )  # fmt: skip

    def jobs(self) -> tuple[jobs.SlurmJob, ...]:
        """The job."""
        return (self.job,)

    def cluster(self) -> snapshot.SlurmCluster:
        """No nodes."""
        return snapshot.SlurmCluster()


def _lines(sound: str) -> Callable[[Random], str]:
    return lambda random: "".join(damaged_text(random, sound) + "\n" for _ in range(random.randrange(1, 3)))


def _json(sound: Any) -> Callable[[Random], str]:
    """A damaged document as JSON text, sometimes damaged as text too; NaN and Infinity are possible."""

    def generate(random: Random) -> str:
        made = json.dumps(damaged(random, sound, typed=False))
        return damaged_text(random, made) if random.random() < 0.3 else made

    return generate


def _request(random: Random) -> bytes:
    return damaged_text(random, REQUEST).encode(errors="replace")


def _response(random: Random) -> SizingResponse:
    fields = {"partition": text(random), "max_nodes": 1}
    return SizingResponse(verdict=SizingVerdict.OK, say=text(random), fields=fields)


def _one_line(response: SizingResponse) -> None:
    lines = response_text(response).decode("ascii").splitlines()
    assert lines[-1] == "END"
    assert lines.count("END") == 1


def _record(line: str) -> None:
    try:
        records = (Record.parse(line),)
    except (ValueError, TypeError):
        return
    reading_of(marks_of(records), now_s=2e9, window_s=600.0, warm_up_s=1.0)


def _run_directory(random: Random) -> dict[str, str]:
    """A run directory of which one file is damaged."""
    sound = {"slurm.json": RUN, "progress.jsonl": STEP, "sizes.jsonl": START}
    files = {name: json.dumps(document) + "\n" for name, document in sound.items()}
    chosen = random.choice(tuple(sound))
    return files | {chosen: _json(sound[chosen])(random) + "\n"}


def looked_at(files: dict[str, str]) -> ReportRow:
    """The monitor's processing of a run directory, without the isolation of one job's faults."""
    for name, content in files.items():
        (RUNS / name).write_text(content)
    rows = MONITOR.look()
    if "internal error" in rows[0].monitored.note:
        raise AssertionError(rows[0].monitored.note)
    metrics = SweepMetrics(cluster="x")
    metrics.swept(rows, (), at_s=1.0, took_s=1.0)
    list(metrics.collect())
    report.table_row(rows[0])
    report.document(report.JobsReport(rows=rows)).model_dump_json()
    return rows[0]


def _size_request(content: str) -> int | None:
    (RUNS / size_request.NAME).write_text(content)
    return size_request.read(RUNS, job_id=7, restart=0)


def _run_file(content: str) -> object:
    (RUNS / runfile.NAME).write_text(content)
    return runfile.read(RUNS)


def _comment(written: str) -> None:
    monitored_job(jobs.SlurmJob(job_id=7, comment=written))
    comment.with_variables(comment.written(written), {"RIGHTSIZER_DP": comment.hold_of(written)})
    comment.plan_of(comment.parse(written))


_FOLDER = tempfile.TemporaryDirectory()
RUNS = Path(_FOLDER.name)
(RUNS / "plan.yaml").write_text(PLAN)
MONITOR = Monitor(OneJob(RUNS), IntentLog(":memory:"), MonitorSettings())  # type: ignore[arg-type]


def _target(name: str, generate: Callable[[Random], Any], parse: Callable[[Any], object]) -> Target:
    return Target(name=name, generate=generate, parse=parse)


def _text_of(sound: str) -> Callable[[Random], str]:
    return lambda random: damaged_text(random, sound)


def _admin_comment(random: Random) -> tuple[str, str]:
    return damaged_text(random, "x [rightsizer/1 nodes=1]"), text(random)


TARGETS: tuple[Target, ...] = (
    _target("scontrol show node", _lines(NODE), lambda t: snapshot.parse(partitions="", nodes=t)),
    _target("scontrol show partition", _lines(PARTITION), lambda t: snapshot.parse(partitions=t, nodes="")),
    _target("sacctmgr show qos", _lines(QOS), lambda t: accounting_limits.parse(qos=t, associations="")),
    _target("sacctmgr show assoc", _lines(ASSOC), lambda t: accounting_limits.parse(qos="", associations=t)),
    _target("squeue --json", _json({"jobs": [JOB]}), jobs_of_json),
    _target("node list", _text_of("n[1-2,07],r[1-3]n[08-11] x"), hostlist.expand),
    _target("gres", _text_of("gpu:h100:8(S:0-1),gres/gpu=2"), jobs.gres_gpus),
    _target("AdminComment", _admin_comment, lambda texts: jobs.noted(*texts)),
    _target("comment", _text_of(COMMENT), _comment),
    _target("#SBATCH", _text_of(SCRIPT), lambda t: request_of(directives(t))),
    _target("rightsizer.conf", _text_of(SITE), config.parse),
    _target("request to the daemon", _request, parse_request),
    _target("answer of the daemon", _response, _one_line),
    _target("plan.yaml", _text_of(PLAN), loads),
    _target("slurm.json", _json(RUN), _run_file),
    _target("progress.jsonl", _json(STEP), _record),
    _target("sizes.jsonl", _json(START), lambda t: size_records.of_job(t, 7)),
    _target("resize.json", _json({"job_id": 7, "restart": 0, "nodes": 2}), _size_request),
    _target("run directory", _run_directory, looked_at),
)
