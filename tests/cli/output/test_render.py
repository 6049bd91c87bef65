"""The lines below a plan: what was assumed, and the option that states it."""

import pytest

from rightsizer_cli.main import execute

ASKED = ["plan", "--model", "llama-3.1-8b", "--tokens", "100B", "--framework", "megatron", "--max-gpus", "64"]
NETWORK = "Assumed: the network between nodes ("


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--deadline", "10d", "--gpu", "H100"], True),
        (["--deadline", "10d", "--node-shape", "p5.48xlarge"], False),
        (["--deadline", "90d", "--gpu", "H100"], False),
    ],
    ids=["typical nodes", "named nodes", "one node"],
)
def test_a_plan_names_the_assumed_network_between_nodes(options, said, capsys):
    assert execute([*ASKED, *options]) == 0
    assert (NETWORK in capsys.readouterr().out) is said
