"""The log of first contacts may only grow."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is run from the repository, not installed
from bench.first_contact.__main__ import figures
from bench.first_contact.log import LOG, append, read

SEALS = {"wave 2": "790ded88999c", "wave 3": "ff8f85ed6d44"}
"""The seal of each wave's last line: it covers that line and all before it."""


def test_known_waves_are_unchanged():
    last = {line["wave"]: line["seal"] for line in read()}
    assert {wave: last[wave] for wave in SEALS} == SEALS


def test_every_wave_of_the_log_is_guarded():
    assert {line["wave"] for line in read()} == set(SEALS)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: text.replace(",18,68,", ",12,45,"), id="a figure"),
        pytest.param(
            lambda text: "".join(text.splitlines(keepends=True)[:3] + text.splitlines(keepends=True)[4:]),
            id="a line",
        ),
    ],
)
def test_a_rewritten_log_is_refused(tmp_path, change):
    copy = tmp_path / "log.csv"
    copy.write_text(change(LOG.read_text()))
    with pytest.raises(ValueError, match="may only grow"):
        read(copy)


def test_a_wave_is_met_first_only_once(tmp_path):
    copy = tmp_path / "log.csv"
    append([{"wave": "w", "quantity": "step", "rows": 3}], copy)
    append([{"wave": "x", "quantity": "step", "rows": 4}], copy)
    with pytest.raises(ValueError, match="happens once"):
        append([{"wave": "w", "rows": 5}], copy)
    assert [line["rows"] for line in read(copy)] == ["3", "4"]


def test_pooled_figures_leave_the_sweep_out_and_count_what_the_interval_holds():
    source = np.asarray(["A", "A", "B", "VTRAIN"])
    error = np.log([1.1, 0.9, 1.5, 3.0])
    pooled, *rest = figures(source, error, np.full(4, 0.2), error)
    assert (pooled["rows"], pooled["median_pct"], pooled["mean_of_source_medians_pct"]) == (3, 10.0, 30.0)
    assert pooled["inside_80_pct"] == 66.7
    assert [line["source"] for line in rest] == ["A", "B", "VTRAIN"]
