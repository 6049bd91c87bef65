"""job_submit.lua in a pretended slurmctld: generic resources beside the GPUs of a size."""

from collections.abc import Callable
from typing import Any

import lupa.lua51
import lupa.lua52
import lupa.lua53
import lupa.lua54
import pytest

from rightsizer_slurm.submit.protocol import SizingResponse, SizingVerdict, response_text

GOOD = "rightsizer: model=llama-3.1-8b tokens=1B deadline=72h"


@pytest.mark.parametrize("module", [lupa.lua51, lupa.lua52, lupa.lua53, lupa.lua54], ids=str)
@pytest.mark.parametrize(
    ("requested", "gres"),
    [
        ("gres:gpu:4,gres:nvme:1", "gpu:h100:2,nvme:1"),
        ("gres/nvme:1,gres/gpu:h100:4,gres/nic", "gpu:h100:2,nvme:1,nic"),
        ("gres:gpu:4", "gpu:h100:2"),
        ("gres:shard:4", "gpu:h100:2"),
        (None, "gpu:h100:2"),
    ],
    ids=["older release", "newer release", "GPUs only", "shares of GPUs", "none"],
)
def test_a_size_keeps_the_user_s_other_generic_resources(
    slurmctld_of: Callable[..., Any], module: Any, requested: str | None, gres: str
) -> None:
    host = slurmctld_of(module)
    fields: dict[str, int | str] = {"min_nodes": 1, "max_nodes": 1, "gres": "gpu:h100:2"}
    host.response = response_text(SizingResponse(verdict=SizingVerdict.OK, fields=fields))
    _, job = host.submit(comment=GOOD, gres=requested)
    assert job["gres"] == gres
