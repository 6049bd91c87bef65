"""Which memory a published row measured is read from its note."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is run from the repository, not installed
from bench.memory_rows import kind_of


@pytest.mark.parametrize(
    ("note", "kind"),
    [
        ("mem=torch.cuda.max_memory_allocated/GiB on rank 0", "allocated"),
        ("mem=peak_allocated 9 MiB (peak_reserved 11 MiB)", "allocated"),
        ("mem=peak ACTIVE GiB", "allocated"),
        ("mem=peak RESERVED GiB", "reserved"),
        ("mem=torch.cuda.max_memory_reserved on rank 0", "reserved"),
        ("mem = nvidia-smi memory.used MiB/1024", "device"),
        ("tool not stated", ""),
    ],
)
def test_the_first_marker_in_the_note_decides_the_kind_of_memory(note, kind):
    assert kind_of(note) == kind
