"""Whatever the cells of a row hold: a case that the engine can estimate, or the reason why not."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.estimate.memory import device_memory
from rightsizer_engine.published.rows import COLUMNS, OPTIONAL_COLUMNS, case_from_row

ROW = {
    "framework": "Megatron-Core r0.8.0", "year": "2024", "model_name": "own-7b", "layers": "32",
    "hidden": "4096", "ffn_hidden": "11008", "heads": "32", "kv_heads": "8", "vocab": "32000",
    "seq_len": "4096", "gpu": "H100-SXM5-80GB", "gpus": "64", "gpus_per_node": "8", "dp": "8", "tp": "4",
    "pp": "2", "micro_batch": "1", "global_batch": "256",
}  # fmt: skip
CELL = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", "nan", "inf", "-1", "0", "1e308", "8x400Gb", "full(block, layers)", "zero9", "1,024"]
    ),
    st.integers(-5, 10**14).map(str),
)


@given(st.dictionaries(st.sampled_from([*COLUMNS, *OPTIONAL_COLUMNS]), CELL, max_size=8))
@example({"layers": "0", "model_name": "Llama 3.1 8B"})
@example({"gpu": "", "year": "1000000000000"})
def test_any_text_gives_a_case_or_a_reason(changes):
    try:
        found = case_from_row(ROW | changes)
    except RightsizerError:
        return
    shape, needed = found.architecture, device_memory.estimate(Cases.of(found)).allocated_bytes
    assert min(shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.vocab, found.layout.gpus) >= 1
    assert shape.parameters_total > 0
    assert np.all(np.isfinite(needed) & (needed > 0))
