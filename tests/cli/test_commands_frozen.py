"""The commands are frozen: SCOPE.md says when one is added."""

from pathlib import Path

import pytest

from rightsizer_cli.commands.slurm.command import COMMANDS as SLURM
from rightsizer_cli.kubectl.commands import COMMANDS as KUBECTL
from rightsizer_cli.main import COMMANDS

SCOPE = Path(__file__).parents[2] / "SCOPE.md"
RULE = "No command is added that an option of an existing one can be"
FROZEN = {
    "rightsizer": "plan estimate explain run probe sbatch advise calibrate simulate report doctor serve"
    " models gpus nodes frameworks operator crd schema version slurm",
    "rightsizer slurm": "daemon monitor report resize install",
    "kubectl rightsizer": "plan explain probe why status resize suspend resume",
}
OFFERED = {
    "rightsizer": list(COMMANDS),
    "rightsizer slurm": [command.__name__ for command in SLURM],
    "kubectl rightsizer": [command.__name__ for command in KUBECTL],
}


@pytest.mark.parametrize("program", FROZEN)
def test_no_command_is_added_without_a_change_of_scope(program):
    assert OFFERED[program] == FROZEN[program].split(), f"{SCOPE.name}: {RULE}"


def test_the_rule_is_part_of_the_scope():
    assert RULE in SCOPE.read_text()
