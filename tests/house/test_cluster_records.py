import dataclasses
import importlib
import os
from pathlib import Path

import pytest


@pytest.fixture
def part(monkeypatch):
    """A module of cluster.py's folder, which is no package."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "e2e" / "cluster")
    return importlib.import_module


@pytest.mark.parametrize(
    ("started", "found"), [("1", False), (None, True)], ids=["another-start-time", "as-recorded"]
)
def test_a_recorded_pid_counts_only_with_its_start_time(part, tmp_path, started, found):
    daemons = part("daemons")
    at = dataclasses.replace(part("place").place({}), state=tmp_path)
    (tmp_path / "pids").mkdir()
    own = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    (tmp_path / "pids" / "etcd").write_text(f"{os.getpid()} {started or own}")
    assert (daemons.pid(at, "etcd") is not None) == found


@pytest.mark.parametrize(
    "setting",
    [
        {"RIGHTSIZER_CLUSTER": "../etc"},
        {"RIGHTSIZER_CLUSTER": ""},
        {"RIGHTSIZER_CLUSTER_NODES": "0"},
        {"RIGHTSIZER_CLUSTER_NODES": "many"},
    ],
    ids=["path", "empty", "none", "word"],
)
def test_a_setting_that_cannot_be_meant_is_refused_by_name(part, setting):
    place = part("place")
    with pytest.raises(place.ClusterError, match=next(iter(setting))):
        place.place(setting)


def test_every_pinned_graph_has_its_sums(part):
    build, modules = part("build"), part("place").MODULES
    assert {path.parent.name for path in modules.glob("*/go.sum")} == set(build.GRAPHS)
