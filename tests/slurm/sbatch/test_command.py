"""`rightsizer sbatch` against a stand-in for Slurm's commands, the sizing real."""

import json
import os

import pytest

from rightsizer_api import loads, sizing
from rightsizer_engine.catalog import lookup
from rightsizer_engine.errors import InputError
from rightsizer_launch.worker.progress import DONE
from rightsizer_slurm.cluster import runfile
from rightsizer_slurm.cluster.slurm_cli import SlurmError
from rightsizer_slurm.sbatch.command import SbatchOptions, submit, submit_plan, submit_script

PLAN = """
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: small}
spec:
  model: {dimensions: {layers: 4, hidden: 192, heads: 4, vocab: 256}}
  workload: {tokens: 150k, sequenceLength: 128, globalBatchSequences: 16}
  deadline: {finishWithin: 30m}
  resources: {minGPUs: 2, maxGPUs: 2, gpusPerNode: 1}
  launch:
    framework: ddp
    command: [train.py]
    checkpoint: {path: ckpt, interval: 5s, grace: 30s}
  elasticity: {mode: Auto, minGPUs: 1}
"""
SCRIPT = """#!/bin/bash
#SBATCH --comment="rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline=24h"
#SBATCH --nodes=2
srun train.sh
"""


OPENING = """
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: small}
spec:
  model: {dimensions: {layers: 16, hidden: 2048, ffnHidden: 8192, heads: 16, vocab: 32000}}
  workload: {tokens: 10B, sequenceLength: 1024, globalBatchSequences: 24, precision: bf16}
  deadline: {finishWithin: 72h}
  resources: {maxGPUs: 4, gpusPerNode: 1}
  layout: {microBatch: 4}
  launch: {framework: ddp, command: [train.py], checkpoint: {path: ckpt}}
  elasticity: {mode: Recommend}
"""


@pytest.fixture
def opening(plan_within, opens):
    """The plan with a deadline for which one GPU is enough at even odds, not at a confidence of 0.9."""
    cluster = lookup.cluster("H100-SXM5-80GB", gpus_per_node=1)
    plan = plan_within(sizing.resolve(loads(OPENING)).request(clusters=(cluster,)), opens(1))
    within = f"{plan.request.deadline_s:.0f}s"
    return OPENING.replace("72h", within), plan.staging.reserve_gpus


@pytest.fixture
def run(tmp_path, fake_slurm):
    """run(text, **options): submits this file; the exit code and what was printed."""

    def make(text, *, environment=None, **options):
        file = tmp_path / "file"
        file.write_text(text)
        lines = []
        settings = SbatchOptions(**{"directory": tmp_path / "run"} | options)
        which = submit_script if text.startswith("#!") else submit_plan
        code = which(
            file, settings, say=lines.append, slurm=fake_slurm.slurm, environment=environment or os.environ
        )
        return code, "\n".join(lines)

    return make


def test_a_plan_is_submitted_with_its_files_and_its_record(run, fake_slurm, tmp_path):
    code, printed = run(PLAN, partition="h100", account="nlp", qos="high", more=("--nice=5",))
    folder = tmp_path / "run"
    assert (code, fake_slurm.calls("sbatch")) == (0, [f"--parsable {folder}/job.sbatch"])
    assert printed.startswith("job 42: ")
    assert f"tail -f {folder}/slurm-42.out" in printed
    batch = (folder / "job.sbatch").read_text()
    assert all(f"#SBATCH {o}\n" in batch for o in ("--account=nlp", "--qos=high", "--nice=5", "--nodes=2"))
    record = runfile.read(folder)
    assert (record.job_id, record.partition, record.nodes, record.node_gpus) == (42, "h100", 2, 1)
    assert (record.elastic, record.fewest_nodes, record.most_nodes) == (True, 1, 2)
    assert record.checkpoint_interval_s == 5.0
    assert record.deadline_at_s == pytest.approx(record.submitted_at_s + 1800.0)


def test_a_resizable_plan_opens_at_its_likely_size_and_grows_up_to_its_reserve(run, opening, tmp_path):
    text, reserve = opening
    code, printed = run(text)
    record = runfile.read(tmp_path / "run")
    assert (code, record.nodes, record.most_nodes, record.first_look_s) == (0, 1, reserve, 1200.0)
    line = "open with 1 H100-SXM5-80GB; after ~20 min of training we know"
    assert all(line in text and f"reserve {reserve}" in text for text in (printed, record.decision))
    assert "export RIGHTSIZER_FIRST_CHECKPOINT_S=600" in (tmp_path / "run" / "job.sbatch").read_text()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mode: Recommend", 'mode: "Off"'),
        (", checkpoint: {path: ckpt}", ""),
        ("[train.py]", '[train.py, "{layout.dp}"]'),
        ("maxGPUs: 4", "gpus: 3"),
    ],
    ids=["off", "no-checkpoints", "size-in-the-command", "fixed-size"],
)
def test_a_job_that_cannot_be_resized_is_sized_for_its_whole_run(run, opening, tmp_path, old, new):
    code, printed = run(opening[0].replace(old, new))
    record = runfile.read(tmp_path / "run")
    assert (code, record.nodes > 1, record.first_look_s) == (0, True, None)
    assert "open with" not in printed
    assert "RIGHTSIZER_FIRST_CHECKPOINT_S" not in (tmp_path / "run" / "job.sbatch").read_text()


def test_a_user_s_script_opens_at_a_fixed_size_because_it_is_never_resized(
    run, opening, fake_slurm, tmp_path
):
    (tmp_path / "plan.yaml").write_text(opening[0])
    code, printed = run(
        f'#!/bin/bash\n#SBATCH --comment="rightsizer: plan={tmp_path}/plan.yaml"\nsrun train.sh\n'
    )
    assert (code, "open with" in printed) == (0, False)
    assert "--nodes=1" not in fake_slurm.calls("sbatch")[0]


def test_the_job_inherits_the_environment_without_variables_that_override_the_script(run, fake_slurm):
    run(
        PLAN,
        environment={"NOTE": "kept", "SBATCH_ACCOUNT": "nlp", "SBATCH_GPUS": "64", "SBATCH_COMMENT": "x"},
    )
    seen = fake_slurm.environment("sbatch")
    assert (seen["NOTE"], seen["SBATCH_ACCOUNT"]) == ("kept", "nlp")
    assert not {"SBATCH_GPUS", "SBATCH_COMMENT"} & seen.keys()


@pytest.mark.parametrize("text", [PLAN, SCRIPT], ids=["plan", "script"])
def test_a_dry_run_prints_what_would_be_submitted_and_writes_nothing(run, fake_slurm, tmp_path, text):
    code, printed = run(text, dry_run=True)
    assert code == 0
    assert "#SBATCH --nodes=2" in printed or "sbatch --parsable" in printed
    assert (fake_slurm.calls("sbatch"), (tmp_path / "run").exists()) == ([], False)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (PLAN.replace("maxGPUs: 2", "maxGPUs: 64").replace("30m", "1s"), {}),
        (SCRIPT, {"time": "20m"}),
    ],
    ids=["plan", "script"],
)
def test_no_plan_is_exit_code_three_and_submits_nothing(run, fake_slurm, text, options):
    code, printed = run(text, **options)
    assert (code, fake_slurm.calls("sbatch")) == (3, [])
    assert "no plan" in printed


def test_a_complete_run_is_not_submitted_again(run, fake_slurm, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / DONE).touch()
    code, printed = run(PLAN)
    assert (code, fake_slurm.calls("sbatch")) == (0, [])
    assert "small is already complete" in printed


def test_a_directory_with_a_live_job_is_refused(run, fake_slurm, tmp_path):
    run(PLAN)
    job = {"job_id": 42, "job_state": ["RUNNING"]}
    fake_slurm.prints("squeue", json.dumps({"jobs": [job]}))
    with pytest.raises(InputError, match=r"is used by job 42 \(running\); scancel it first"):
        run(PLAN)


def test_a_directory_with_another_training_is_refused_and_the_same_one_resumes(run, fake_slurm):
    run(PLAN)
    fake_slurm.breaks("squeue", "slurm_load_jobs error: Invalid job id specified")
    with pytest.raises(InputError, match=r"spec\.workload.*use another --dir"):
        run(PLAN.replace("150k", "300k"))
    assert run(PLAN)[0] == 0


@pytest.mark.parametrize(("help_text", "code"), [("", None), ("  --container-image=IMG  use it", 0)])
def test_an_image_needs_pyxis(run, fake_slurm, help_text, code):
    text = PLAN.replace("framework: ddp", "framework: ddp\n    image: ghcr.io/acme/train:1")
    fake_slurm.prints("srun", help_text)
    if code is None:
        with pytest.raises(InputError, match=r"needs Pyxis .* or Apptainer"):
            run(text)
    else:
        assert run(text)[0] == code


@pytest.mark.parametrize("output", ["", "Submitted batch job 42\n", "no;main\n"], ids=repr)
def test_an_sbatch_that_prints_no_job_number_is_an_error(run, fake_slurm, output):
    fake_slurm.prints("sbatch", output)
    with pytest.raises(SlurmError, match="printed no job number"):
        run(PLAN)


def test_a_refusal_of_sbatch_leaves_no_record_of_a_job(run, fake_slurm, tmp_path):
    fake_slurm.breaks("sbatch", "sbatch: error: Batch job submission failed: Invalid account")
    with pytest.raises(SlurmError, match="Invalid account"):
        run(PLAN)
    assert runfile.read(tmp_path / "run") is None


def test_a_script_is_sized_within_its_lines_and_submitted(run, fake_slurm, tmp_path):
    code, printed = run(SCRIPT, qos="high", account="nlp", more=("--nice=5",))
    (arguments,) = fake_slurm.calls("sbatch")
    assert (code, printed.startswith("job 42: ")) == (0, True)
    assert arguments.startswith("--parsable ")
    assert arguments.endswith(f"--account=nlp --qos=high --nice=5 {tmp_path}/file")
    assert "--gres=gpu:h100:" in arguments


@pytest.mark.parametrize(("nodes", "code"), [(1, 3), (2, 0), (9, 0)])
def test_an_option_bounds_the_nodes_of_a_script_and_never_raises_them(run, fake_slurm, nodes, code):
    two_nodes = SCRIPT.replace("method=lora tokens=50M deadline=24h", "tokens=2B deadline=9h")
    assert run(two_nodes, nodes=nodes)[0] == code
    assert ["--nodes=2" in arguments for arguments in fake_slurm.calls("sbatch")] == [True] * (code == 0)


def test_a_script_without_a_comment_is_refused(run):
    with pytest.raises(InputError, match="has no line #SBATCH --comment"):
        run("#!/bin/bash\nsrun train.sh\n")


def test_accounting_limits_that_cannot_be_read_do_not_stop_a_submission(run, fake_slurm):
    config = "AccountingStorageType = accounting_storage/slurmdbd\nAccountingStorageEnforce = limits\n"
    fake_slurm.prints("config", config)
    fake_slurm.breaks("sacctmgr", "sacctmgr: error: Problem talking to the database: Connection refused")
    assert run(PLAN)[0] == 0


@pytest.mark.parametrize("text", [PLAN, SCRIPT], ids=["plan", "script"])
def test_the_first_two_characters_distinguish_a_script_from_a_plan(fake_slurm, tmp_path, text):
    file, lines = tmp_path / "file", []
    file.write_text(text)
    options = SbatchOptions(directory=tmp_path / "run", dry_run=True)
    assert submit(file, options, say=lines.append, slurm=fake_slurm.slurm) == 0
    assert ("sbatch --parsable" in lines[0]) == (text is SCRIPT)


def test_a_file_that_cannot_be_read_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"^FILE: .*no such file"):
        submit(tmp_path / "none", SbatchOptions(), say=print)


@pytest.mark.parametrize("text", [PLAN, SCRIPT], ids=["plan", "script"])
def test_a_submit_reads_the_cluster_once(run, fake_slurm, text):
    assert run(text)[0] == 0
    calls = fake_slurm.calls("scontrol")
    assert [sum(f"show {what}" in call for call in calls) for what in ("node", "partition")] == [1, 1]
