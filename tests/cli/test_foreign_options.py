"""Options of other tools are refused in one line that names ours."""

import pytest

from rightsizer_cli.main import execute
from rightsizer_cli.requests.foreign_options import remedy


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("--num-gpus", "use --gpus"),
        ("--nnodes", "use --nodes"),
        ("--batch-size", "use --global-batch, in tokens a step"),
        ("--per_device_train_batch_size", "use --micro-batch"),
        ("--gradient-accumulation-steps", "follows from --global-batch"),
        ("--context-length", "use --sequence-length"),
        ("--max_seq_length", "use --sequence-length"),
        ("--seq_len", "use --seq-len"),
        ("--tensor-model-parallel-size", "use --tp"),
        ("--lr", "changes no size; leave it out"),
        ("--days", "use --deadline, such as 3d"),
        ("--max-steps", "use --tokens: steps times"),
        ("--num-train-epochs", "use --epochs"),
        ("--load-in-4bit", "use --method qlora"),
        ("-m", "use --model"),
    ],
)
def test_an_option_of_another_tool_suggests_ours(typed, ours, capsys):
    assert execute(["plan", "--model", "gpt2", typed, "3"]) == 2
    error = capsys.readouterr().err
    assert f"No such option: {typed}; {ours}" in error
    assert error.count("\n") == 1


def test_an_option_that_a_command_does_not_have_is_never_advised():
    assert remedy("--num-gpus", {"--port"}) == ""
