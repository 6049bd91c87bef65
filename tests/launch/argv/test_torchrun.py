import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightsizer_engine.errors import InputError
from rightsizer_launch.argv.torchrun import Program, Torchrun, environment, program, program_arguments


def job(**changes) -> Torchrun:
    return Torchrun(
        **{"name": "plan", "attempt": 3, "endpoint": "127.0.0.1:29400", "min_nodes": 1, "max_nodes": 4}
        | changes
    )


def test_no_worker_hosts_the_store_and_the_stores_stay_apart():
    variables = environment(job())
    assert "is_host=0" in variables["PET_RDZV_CONF"].split(",")
    assert variables["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"


def test_an_older_attempt_cannot_join_a_newer_world():
    assert environment(job(attempt=3))["PET_RDZV_ID"] != environment(job(attempt=4))["PET_RDZV_ID"]


@pytest.mark.parametrize(("low", "high"), [(0, 2), (3, 2)], ids=["no nodes", "min above max"])
def test_impossible_sizes_are_refused(low, high):
    with pytest.raises(InputError, match="min must be"):
        job(min_nodes=low, max_nodes=high)


@pytest.mark.torchrun
@settings(deadline=None)
@given(
    low=st.integers(1, 64), more=st.integers(0, 64), per_node=st.integers(1, 8), restarts=st.integers(0, 9999)
)
def test_torchruns_own_parser_reads_the_environment_as_the_job(low, more, per_node, restarts):
    run = pytest.importorskip("torch.distributed.run")
    spec = job(
        min_nodes=low,
        max_nodes=low + more,
        workers_per_node=per_node,
        max_restarts=restarts,
        local_address="127.0.0.1",
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(spec).items():
            patch.setenv(name, value)
        parsed = run.parse_args([*program_arguments(Program(target="train.py", arguments=("--x", "1")))])
    assert parsed.nnodes == f"{low}:{low + more}"
    assert (str(parsed.nproc_per_node), int(parsed.max_restarts)) == (str(per_node), restarts)
    assert (parsed.rdzv_id, parsed.rdzv_endpoint, parsed.local_addr) == (
        "plan-3",
        "127.0.0.1:29400",
        "127.0.0.1",
    )
    assert (parsed.training_script, parsed.training_script_args) == ("train.py", ["--x", "1"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.py", "--a"], ("train.py", "--a")),
        (["python", "-u", "train.py"], ("train.py",)),
        (["python3", "-m", "torchtitan.train", "--x"], ("--module", "torchtitan.train", "--x")),
        (["/opt/bin/run", "--x"], ("--no-python", "/opt/bin/run", "--x")),
    ],
    ids=["script", "python script", "module", "executable"],
)
def test_a_plans_command_becomes_torchruns_program(words, expected):
    assert program_arguments(program(words)) == expected


@pytest.mark.parametrize(
    "words",
    [[], ["torchrun", "t.py"], ["python"], ["python", "-c", "1"]],
    ids=["empty", "launcher", "bare", "inline"],
)
def test_a_command_that_cannot_be_launched_is_refused(words):
    with pytest.raises(InputError, match=r"launch\.command"):
        program(words)
