"""#SBATCH lines are read as sbatch reads them, and overridden by the same options."""

import pytest

from rightsizer_engine.errors import InputError
from rightsizer_slurm.sbatch.directives import directives, overrides, request_of

SCRIPT = """#!/bin/bash
#SBATCH --comment="rightsizer: model=gpt2 tokens=1B" -t 2-0  # two days
# a comment
#SBATCH -N2-4 --gpus-per-node h100:8 -p h100

srun train
#SBATCH --nodes=9
"""


def test_the_lines_before_the_first_command_count():
    assert directives(SCRIPT) == {
        "comment": "rightsizer: model=gpt2 tokens=1B",
        "time": "2-0",
        "nodes": "2-4",
        "gpus-per-node": "h100:8",
        "partition": "h100",
    }


def test_they_bound_the_request():
    request = request_of(directives(SCRIPT), time="12h")
    assert (request.min_nodes, request.max_nodes, request.gres, request.partition) == (
        2,
        4,
        "gpu:h100:8",
        "h100",
    )
    assert request.time_limit == 720


def test_gpus_of_a_node_bind_beside_other_resources():
    assert request_of({"gpus-per-node": "4", "gres": "nvme:1"}).gres == "nvme:1,gpu:4"


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("90:30", 91),
        ("1:30:00", 90),
        ("1-2", 1560),
        ("1-2:03", 1563),
        ("1-2:03:04", 1564),
        ("", None),
    ],
    ids=str,
)
def test_time_limits_of_every_form(text, minutes):
    assert request_of({"time": text}).time_limit == minutes


@pytest.mark.parametrize(
    "options",
    [
        {"gpus": "16"},
        {"gpus-per-task": "1"},
        {"cpus-per-gpu": "4"},
        {"nodes": "two"},
        {"time": "soon"},
        {"time-min": "1w"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_cannot_be_bounded_is_refused(options):
    with pytest.raises(InputError, match="#SBATCH --"):
        request_of(options)


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({}, "--gres=gpu:h100:4"),
        ({"gres": "gpu:8,nvme:1"}, "--gres=gpu:h100:4,nvme:1"),
        ({"gpus-per-node": "8", "gres": "nvme:1"}, "--gpus-per-node=h100:4"),
    ],
    ids=["gres", "other resources", "gpus-per-node"],
)
def test_gpus_keep_the_script_s_own_option(options, option):
    flags = overrides({"max_nodes": 2, "gres": "gpu:h100:4", "time_limit": 60}, options)
    assert flags == ("--nodes=2", "--time=60", option)


def test_the_options_that_bind_the_size_are_read() -> None:
    lines = ("-w n[1-2] -x n1 -C h100 --mem=64G", "--reservation=r --deadline now+3hours --exclusive")
    request = request_of(directives("#!/bin/sh\n" + "".join(f"#SBATCH {line}\n" for line in lines)))
    assert (request.req_nodes, request.exc_nodes, request.features) == ("n[1-2]", "n1", "h100")
    assert (request.node_mb, request.exclusive, request.core_mb) == (65_536, 0, None)
    assert (request.reservation, request.deadline) == ("r", "now+3hours")


def test_memory_that_is_no_size_is_an_error() -> None:
    with pytest.raises(InputError, match="is not a size; write for example 64G"):
        request_of(directives("#!/bin/sh\n#SBATCH --mem=much\n"))
