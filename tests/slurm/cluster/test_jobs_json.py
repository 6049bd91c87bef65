"""squeue's JSON, in the shape of 22.05 and in that of 23.11 and later, comes to the same job."""

import pytest

from rightsizer_slurm.cluster.jobs import gres_gpus
from rightsizer_slurm.cluster.jobs_json import job_of_json

OLD = {
    "job_id": 7, "name": "train", "user_name": "ada", "user_id": 1000, "account": "nlp",
    "job_state": "RUNNING", "comment": "rightsizer: x",
    "state_reason": "None", "partition": "h100", "node_count": 2, "nodes": "n[1-2]", "batch_host": "n1",
    "tasks": 2, "cpus": 32, "gres_detail": ["gpu:h100:8(IDX:0-7)", "gpu:h100:8(IDX:0-7)"],
    "admin_comment": "", "time_limit": 60, "submit_time": 100, "start_time": 110, "end_time": 3710,
    "restart_cnt": 1, "requeue": True, "priority": 5, "tres_req_str": "cpu=32,node=2,billing=32",
    "tres_alloc_str": "cpu=32,node=2,billing=32", "tres_per_node": "gres:gpu:h100:8",
    "array_job_id": 0, "het_job_id": 0,
}  # fmt: skip


def number(value):
    return {"set": True, "infinite": False, "number": value}


NUMBERS = (
    "node_count", "tasks", "cpus", "time_limit", "submit_time", "start_time", "end_time", "priority",
    "array_job_id",
)  # fmt: skip
NEW = OLD | {name: number(OLD[name]) for name in NUMBERS} | {"job_state": ["RUNNING"]}


@pytest.mark.parametrize("raw", [OLD, NEW], ids=["22.05", "24.11"])
def test_both_shapes_are_one_job(raw):
    job = job_of_json(raw)
    assert (job.job_id, job.nodes, job.gpus, job.gpu_type) == (7, 2, 16, "h100")
    assert (job.started_s, job.restarts) == (110.0, 1)
    assert job.running
    assert job.requeue
    assert not job.special


def test_a_waiting_job_requests_its_last_change():
    waiting = OLD | {
        "job_state": "PENDING",
        "node_count": 2,
        "tres_req_str": "cpu=64,node=4",
        "gres_detail": [],
    }
    assert job_of_json(waiting).nodes == 4
    assert job_of_json(waiting).gpus == 32


@pytest.mark.parametrize(
    ("states", "running", "pending"),
    [(["RUNNING"], True, False), (["RUNNING", "COMPLETING"], False, False), (["PENDING"], False, True),
     (["PENDING", "COMPLETING"], False, False), ([], False, False)],
    ids=lambda value: "+".join(value) if isinstance(value, list) else None,
)  # fmt: skip
def test_a_job_on_its_way_out_neither_runs_nor_waits(states, running, pending):
    job = job_of_json(NEW | {"job_state": states})
    assert (job.running, job.pending) == (running, pending)


@pytest.mark.parametrize(
    "fields", [{"priority": 0}, {"state_reason": "JobHeldUser"}], ids=["priority", "reason"]
)
def test_a_held_job_is_known(fields):
    assert job_of_json(OLD | {"job_state": "PENDING"} | fields).held


def test_arrays_and_het_jobs_are_distinguished():
    assert job_of_json(OLD | {"array_job_id": 7}).special == "array"
    assert job_of_json(OLD | {"het_job_id": 7}).special == "het"


def test_a_job_without_details_is_no_error():
    assert job_of_json({}).gpus == 0


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:h100:8(S:0-1)", ("h100", 8)),
        ("gres:gpu:2", ("", 2)),
        ("gres/gpu:a100=4", ("a100", 4)),
        ("gpu", ("", 1)),
        ("nic:2,gpu:l4:1(IDX:0,2)", ("l4", 1)),
        ("gpu:a100:2,gpu:h100:1", ("a100", 3)),
        ("", ("", 0)),
    ],
    ids=str,
)
def test_gpus_of_a_gres(text, gpus):
    assert gres_gpus(text) == gpus
