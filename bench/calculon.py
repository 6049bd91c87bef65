"""Seconds that Calculon takes for a layout of Llama 3.1 405B, if `FOLDER/bin/calculon` exists.

    FOLDER/.venv/bin/python bench/calculon.py FOLDER

Runs under Calculon's own interpreter (it needs pandas and psutil), so it imports none of our packages.
Layouts are those of its own search (tensor, pipeline and data ranks, micro-batch, recomputation) on 4,032
H100s, without its overlap variants; layouts that it refuses count too, as in our figure.
"""

import importlib
import itertools
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

_GPUS, _BATCH = 4032, 4032
_MODEL = {
    "seq_size": 8192,
    "hidden": 16384,
    "feedforward": 53248,
    "attn_heads": 128,
    "attn_size": 128,
    "num_blocks": 126,
}


def layouts() -> list[dict[str, Any]]:
    """Executions as Calculon spells them."""
    found = []
    for tp, pp, micro, recompute in itertools.product(
        (1, 2, 4, 8), (1, 2, 3, 6, 7, 9, 14, 18, 21, 42, 63, 126), (1, 2, 4), ("full", "attn_only", "none")
    ):
        dp = _GPUS // (tp * pp)
        if tp * pp * dp == _GPUS and _BATCH % (dp * micro) == 0:
            found.append(_execution(tp, pp, dp, micro, recompute))
    return found


def _execution(tp: int, pp: int, dp: int, micro: int, recompute: str) -> dict[str, Any]:
    return {
        "num_procs": _GPUS, "tensor_par": tp, "pipeline_par": pp, "data_par": dp, "tensor_par_net": 0,
        "pipeline_par_net": 1, "data_par_net": 1, "batch_size": _BATCH, "microbatch_size": micro,
        "datatype": "float16", "fused_activation": True, "attention_type": "multihead",
        "activation_recompute": recompute, "pipeline_interleaving": 1, "optimizer_sharding": dp > 1,
        "tensor_par_comm_type": "rs_ag", "tensor_par_overlap": "none", "seq_par_ag_redo": False,
        "data_par_overlap": dp > 1, "weight_offload": False, "activations_offload": False,
        "optimizer_offload": False, "training": True,
    }  # fmt: skip


def main(folder: Path) -> None:
    """Price all layouts; print their number, the number accepted, and the processor seconds."""
    sys.path.insert(0, str(folder))
    calculon, llm = importlib.import_module("calculon"), importlib.import_module("calculon.llm")
    machine = json.loads((folder / "systems" / "h100_80g_nvl8.json").read_text(encoding="utf-8"))
    system, application = calculon.System(machine), llm.Llm.Application(_MODEL)
    some, accepted, start = layouts(), 0, time.process_time()
    for one in some:
        model = llm.Llm(application, logging.Logger("calculon", logging.ERROR))
        try:
            model.compile(system, llm.Llm.Execution.from_json(one))
            model.run(system)
            accepted += 1
        except llm.Llm.Error:
            continue
    print(json.dumps({"layouts": len(some), "accepted": accepted, "cpu_s": time.process_time() - start}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
