import pytest

from rightsizer_slurm.cluster.snapshot import clock_s, parse

NODE_22 = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=32 CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=13.20"
    " ActiveFeatures=h100,ib Gres=gpu:h100:8 GresDrain=N/A GresUsed=gpu:h100:{used}(IDX:0-2)"
    " NodeAddr=127.0.0.1 OS=Linux 6.18.44 #1 SMP RealMemory=500000 State={state} Partitions=h100"
    " Reason=broken State=IDLE Gres=gpu:h100:99 [root@2026-11-21T16:46:40]"
)
PARTITION = (
    "PartitionName=h100 AllowGroups=ALL AllowAccounts=nlp,cv AllowQos=ALL Default=YES QoS=N/A"
    " DefaultTime=01:00:00 MaxNodes={most} MaxTime=7-00:00:00 MinNodes=0 Nodes=n[1-2,7] State={state}"
)


def node(state: str = "IDLE", used: int = 0):
    return parse(partitions="", nodes=NODE_22.format(state=state, used=used)).nodes[0]


def test_a_node_has_its_gpus_cores_and_memory() -> None:
    parsed = node(used=3)
    assert (parsed.name, parsed.gpu, parsed.gpus, parsed.gpus_used, parsed.cpus) == ("n1", "h100", 8, 3, 64)
    assert (parsed.memory_bytes, parsed.features) == (500_000 * 2**20, ("h100", "ib"))


@pytest.mark.parametrize(
    "state", ["IDLE", "MIXED", "ALLOCATED", "MIXED+PLANNED", "IDLE+CLOUD", "ALLOCATED+COMPLETING"]
)
def test_a_node_that_works_is_up(state: str) -> None:
    assert node(state).up


@pytest.mark.parametrize(
    "state",
    ["DOWN", "DOWN*", "IDLE*", "IDLE+DRAIN", "MIXED+DRAIN", "DOWN+DRAIN+INVALID_REG", "UNKNOWN", "FUTURE",
     "IDLE+MAINTENANCE", "IDLE+NOT_RESPONDING", "IDLE+REBOOT_ISSUED", "ERROR", ""],
)  # fmt: skip
def test_a_node_that_takes_no_jobs_is_not_up(state: str) -> None:
    assert not node(state).up


@pytest.mark.parametrize(
    ("gres", "kind", "gpus"),
    [
        ("gpu:8", "", 8),
        ("gpu:h100:8(S:0-1)", "h100", 8),
        ("nic:2,gpu:a100:4(S:0,1),mps:400", "a100", 4),
        ("gpu:a100:2,gpu:h100:6", "h100", 6),
        ("gpu:a100_3g.20gb:4", "a100_3g.20gb", 4),
        ("gpu:1g.10gb:7", "1g.10gb", 7),
        ("gpu:h100:4,gpu:1g.10gb:7", "h100", 4),
        ("(null)", "", 0),
        ("gpux:8", "", 0),
    ],
)
def test_gpus_are_read_from_any_gres(gres: str, kind: str, gpus: int) -> None:
    parsed = parse(partitions="", nodes=f"NodeName=x Gres={gres} State=IDLE").nodes[0]
    assert (parsed.gpu, parsed.gpus) == (kind, gpus)


def test_a_partition_has_its_nodes_and_limits() -> None:
    text = PARTITION.format(most="2", state="UP")
    parsed = parse(partitions=text, nodes=NODE_22.format(state="IDLE", used=0)).partitions[0]
    assert (parsed.name, parsed.nodes, parsed.default, parsed.up) == ("h100", ("n1", "n2", "n7"), True, True)
    assert (parsed.max_nodes, parsed.max_time_s) == (2, 604_800)
    assert (parsed.accounts, parsed.groups) == (("nlp", "cv"), ())


@pytest.mark.parametrize("state", ["DOWN", "DRAIN", "INACTIVE"])
def test_a_closed_partition_is_not_up(state: str) -> None:
    parsed = parse(partitions=PARTITION.format(most="UNLIMITED", state=state), nodes="").partitions[0]
    assert (parsed.up, parsed.max_nodes) == (False, None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("01:00:00", 3600),
        ("7-00:00:00", 604_800),
        ("1-12:30:05", 131_405),
        ("30:00", 1800),
        ("UNLIMITED", None),
    ],
)
def test_times_are_read(text: str, seconds: float | None) -> None:
    assert clock_s(text) == seconds


def test_the_snapshot_has_a_description(cluster) -> None:
    assert cluster.summary() == "h100: 32 x h100 (32 free), a100: 8 x a100 (8 free)"


def test_a_line_without_a_field_is_skipped() -> None:
    """scontrol prints one when it warns; it ended the daemon's watch."""
    partition = PARTITION.format(most=2, state="UP")
    parsed = parse(partitions=f"slurm is busy\n\n{partition}\n", nodes=f"?\n{NODE_22}\n")
    assert [p.name for p in parsed.partitions] == ["h100"]
    assert [n.name for n in parsed.nodes] == ["n1"]
