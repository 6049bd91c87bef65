"""The report's summary, rows and document, of jobs that are stated."""

import pytest

from rightsizer_engine.domain.reading import Reading
from rightsizer_engine.errors import InputError
from rightsizer_engine.resize.types import Action, Decision
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.slurm_cli import Slurm
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.monitor.decide import ReportRow
from rightsizer_slurm.monitor.inspection import InspectedJob
from rightsizer_slurm.monitor.intent_log import Intent, IntentStage, Kind
from rightsizer_slurm.monitor.report import HEADINGS, JobsReport, document, look, resize_lines, table_row
from rightsizer_slurm.monitor.settings import MonitorSettings
from rightsizer_slurm.state_file import alone, default_path


def report_row(action=Action.KEEP, gpus=8, *, state="RUNNING", note="", **reading):
    job = SlurmJob(
        job_id=7, user="ann", states=(state,), partition="gpu", nodes=1, node_list="n1", gpus=8
    )  # fmt: skip
    made = Decision(action=action, gpus=gpus, reason="well sized")
    return ReportRow(monitored=InspectedJob(job=job, note=note), reading=Reading(**reading), decision=made)


INTENT = Intent(
    job_id=7, kind=Kind.SHRINK, from_nodes=4, to_nodes=2, node_cores=8, restarts=0, stage=IntentStage.DONE,
    began_s=100.0, changed_s=160.0, reason="saves", outcome="trains on 2 nodes",
)  # fmt: skip


def test_a_row_has_a_job_s_values_in_the_table_s_columns():
    result = table_row(report_row(steps=120, tokens_per_s=1500.0))
    assert result == ("7", "ann", "running", "gpu n1", "8", "", "120", "1.5k", "", "well sized")
    assert len(result) == len(HEADINGS)


def test_unknown_cells_are_empty_and_a_recommendation_is_named_with_its_size():
    assert table_row(report_row(Action.SHRINK, 4))[6:] == ("", "", "", "shrink to 4 GPUs: well sized")
    assert table_row(report_row(Action.FLAG, note="not managed"))[-1] == "flag: not managed"


def test_the_summary_counts_running_waiting_flagged_and_resizable_jobs():
    rows = (report_row(), report_row(Action.FLAG), report_row(Action.GROW, 16), report_row(state="PENDING"))
    assert JobsReport(rows=rows, waiting=1).summary == (
        "3 GPU jobs run on 24 GPUs, 1 wait; 1 flagged, another size recommended for 1"
    )


def test_the_document_holds_every_job_and_resize():
    report = document(JobsReport(rows=(report_row(Action.SHRINK, 4, steps=120),), intents=(INTENT,)))
    result = report.model_dump(mode="json", by_alias=True)
    (job,), (resize,) = result["jobs"], result["resizes"]
    assert (job["jobId"], job["action"], job["wantsGpus"], job["step"]) == (7, "shrink", 4, 120)
    assert (job["plan"], job["note"], job["tokensPerSecond"]) == (None, None, None)
    assert (resize["fromNodes"], resize["toNodes"], resize["stage"]) == (4, 2, "done")
    assert resize["said"] == "trains on 2 nodes"


def test_a_resize_is_one_line_with_its_age():
    (text,) = resize_lines((INTENT,))
    assert text == "job 7: shrink 4 -> 2 nodes, done 1m after its start: trains on 2 nodes"


class Empty:
    """A cluster without jobs."""

    def jobs(self):
        return ()

    def cluster(self):
        return SlurmCluster(partitions=(), nodes=())


def test_a_state_file_that_is_absent_or_out_of_reach_is_skipped(tmp_path):
    (tmp_path / "file").touch()
    for state in (tmp_path / "none.db", tmp_path / "file" / "state.db"):
        assert look(Empty(), MonitorSettings(), slurm=Slurm(folder=tmp_path), state=state).intents == ()


def test_a_monitor_with_an_unwritable_state_reports_it(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"), alone(tmp_path / "file" / "state.db"):
        pass


def test_the_default_state_is_the_daemon_s_if_it_is_writable(tmp_path):
    assert default_path(tmp_path / "state.db") == tmp_path / "state.db"
