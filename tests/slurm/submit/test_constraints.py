import datetime as dt
from dataclasses import replace

import pytest

from rightsizer_engine.errors import InputError
from rightsizer_slurm.cluster.snapshot import Reservation, SlurmCluster
from rightsizer_slurm.submit.constraints import NotUnderstoodError, narrowed, time_left_s
from rightsizer_slurm.submit.protocol import SizingRequest

NOW = dt.datetime(2027, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def site(cluster: SlurmCluster) -> SlurmCluster:
    """The cluster, with memory and features, and a reservation of n3 and n4 for two hours."""
    nodes = tuple(
        replace(
            node,
            memory_bytes=500_000 * 2.0**20,
            features=(node.gpu, "ib"),
            gres=("nvme",) if node.gpu == "a100" else (),
        )
        for node in cluster.nodes
    )
    soon = dt.timedelta(hours=2)
    mine = Reservation(
        name="mine", nodes=("n3", "n4"), cores=128, active=True, starts_at=NOW - soon, ends_at=NOW + soon
    )
    part = Reservation(name="part", nodes=("n1",), cores=4)
    return replace(cluster, nodes=nodes, reservations=(mine, part))


@pytest.mark.parametrize(
    ("request_of", "names"),
    [
        ({}, "n1 n2 a1 a2"),
        ({"req_nodes": "n[1-2]"}, "n1 n2"),
        ({"exc_nodes": "n1,a[1-2]"}, "n2"),
        ({"features": "a100&ib"}, "a1 a2"),
        ({"features": "h100|a100"}, "n1 n2 a1 a2"),
        ({"node_cpus": 64}, "n1 n2"),
        ({"node_mb": 500_000, "exc_nodes": "n1"}, "n2 a1 a2"),
        ({"reservation": "mine"}, "n3 n4"),
        ({"gres": "gres:gpu:2,gres:nvme:1"}, "a1 a2"),
    ],
    ids=str,
)
def test_the_nodes_are_those_that_the_options_allow(
    site: SlurmCluster, request_of: dict[str, object], names: str
) -> None:
    found = narrowed(site, SizingRequest(**request_of))  # type: ignore[arg-type]
    assert [node.name for node in found.nodes if node.up] == names.split()


def test_cores_and_gpus_are_those_with_memory(site: SlurmCluster) -> None:
    request = SizingRequest(core_mb=100_000, gpu_memory="gres:gpu:200000")
    node = narrowed(site, request).nodes[0]
    assert (node.cpus, node.gpus) == (5, 2)


@pytest.mark.parametrize(
    "request_of",
    [
        {"req_nodes": "x9"},
        {"req_nodes": "n[1-"},
        {"features": "[a|b]"},
        {"features": "h100*2"},
        {"features": "other"},
        {"reservation": "none"},
        {"reservation": "part"},
    ],
    ids=str,
)
def test_an_unknown_constraint_is_reported(site: SlurmCluster, request_of: dict[str, str]) -> None:
    with pytest.raises(NotUnderstoodError):
        narrowed(site, SizingRequest(**request_of))  # type: ignore[arg-type]


def test_options_that_leave_no_gpus_are_named(site: SlurmCluster) -> None:
    with pytest.raises(InputError, match="--exclude, --mem: None: leaves no node with GPUs"):
        narrowed(site, SizingRequest(node_mb=600_000, exc_nodes="n1"))


@pytest.mark.parametrize(
    ("request_of", "hours"),
    [
        ({"reservation": "mine"}, [2.0]),
        ({"deadline": "now+3hours"}, [3.0]),
        ({"deadline": "2027-01-01T05:00:00+00:00"}, [5.0]),
        ({}, []),
    ],
    ids=str,
)
def test_the_time_left_is_the_reservations_and_the_deadlines(
    site: SlurmCluster, request_of: dict[str, str], hours: list[float]
) -> None:
    left = time_left_s(site, SizingRequest(**request_of), NOW)  # type: ignore[arg-type]
    assert [seconds / 3600 for seconds in left.values()] == hours


def test_a_deadline_that_cannot_be_read_is_not_understood(site: SlurmCluster) -> None:
    with pytest.raises(NotUnderstoodError, match="--deadline noon: write now"):
        time_left_s(site, SizingRequest(deadline="noon"), NOW)
