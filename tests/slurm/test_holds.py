import pytest

from rightsizer_slurm.holds import changes
from rightsizer_slurm.protocol import Answer, Question, Verdict

ANSWER = Answer(
    verdict=Verdict.OK,
    fields={"min_nodes": 3, "max_nodes": 3, "min_cpus": 192, "gres": "gpu:h100:8", "partition": "h100",
            "time_limit": 90, "admin_comment": "rightsizer/1 nodes=3"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "tasks"),
    [
        ({}, ("NumCPUs=192",)),
        ({"cpus_per_task": 16}, ("NumTasks=3", "NumCPUs=48")),
        ({"ntasks_per_node": 8}, ("NumTasks=24", "NumCPUs=24")),
        ({"ntasks_per_node": 8, "cpus_per_task": 2}, ("NumTasks=24", "NumCPUs=48")),
        ({"num_tasks": 6}, ("NumTasks=6", "NumCPUs=6")),
    ],
    ids=lambda words: " ".join(words) or "nothing",
)
def test_tasks_and_cores_agree_with_what_the_user_wrote(
    words: dict[str, int], tasks: tuple[str, ...]
) -> None:
    others = ("TimeLimit=90", "Partition=h100", "TresPerNode=gres:gpu:h100:8")
    assert changes(Question(**words), ANSWER) == ("NumNodes=3-3", *tasks, *others)
