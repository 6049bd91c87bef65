"""The cluster of a published row: nodes, links and power limit from free text.

No rule is specific to one source.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.hardware import Cluster, Gpu, NodeShape
from rightsizer_engine.published import fields

Row = Mapping[str, str]

_NIC_GBPS = (
    (r"\bndr-?200\b|\bhdr-?200\b", 200.0),
    (r"\broce-?100\b", 100.0),
    (r"\broce-?200\b", 200.0),
    (r"\broce-?400\b", 400.0),
    (r"\bhdr-?100\b|slingshot[- ]?10\b", 100.0),
    (r"connect-?x-?8|cx-?8|\bxdr\b", 800.0),
    (r"connect-?x-?7|cx-?7|\bndr(?:-?400)?\b", 400.0),
    (r"connect-?x-?6|cx-?6|\bhdr\b|slingshot", 200.0),
    (r"connect-?x-?5|cx-?5|\bedr\b|omni-?path", 100.0),
    (r"\bfdr\b", 56.0),
    (r"nvidia connec", 400.0),
    (r"giga? ?(bit )?ethernet", 1.0),
)
_RATE = re.compile(
    r"(?:(\d{1,3})\s*(?:x|\*|-way)\s*[^,;()]{0,48}?)?(\d{1,5}(?:\.\d{1,3})?)\s*(gb/s|gbps|gb/sec|gbit/s|gb|g\b)",
    re.I,
)
_NODE_GBPS = (
    (r"efa[ -]?v?[23]\b", 3200.0),
    (r"efa[ -]?v?1\b", 400.0),
    (r"tcpxo\b", 1600.0),
    (r"tcpx\b", 800.0),
)
"""Clouds' networks by their names: the whole node's rate (links.csv)."""
_SPEEDS = re.compile(r"(?:\d{1,4} ?Gb?/)+(?=\d{1,4} ?Gb)", re.I)
"""The lower speeds that a card can be set to ("10Gb/25Gb/100Gb Ethernet")."""
_NICS = re.compile(r"(\d{1,3})\s*(?:x|\*)\s", re.I)


def cluster_of(row: Row, gpu: Gpu, gpus: int) -> Cluster:
    """The row's nodes and links, else those of the machine that it names, else the catalog's for that GPU."""
    network, intra = fields.text(row, "interconnect_inter"), str(row.get("interconnect_intra") or "").strip()
    machine = lookup.system(f"{network} {intra}", gpu.name)
    typical = machine.gpus if machine else gpu.gpus_per_node
    per_node = fields.count(row, "gpus_per_node") or min(typical, gpus)
    rate = link_bytes_per_s(network, per_node) if network else None
    if machine and not _states_rate(network):
        rate = machine.inter_bytes_per_s
    base = lookup.cluster(
        gpu.name,
        gpus_per_node=per_node,
        inter_bytes_per_s=rate,
        power_w=_power_w(row, gpu, machine),
        max_gpus=gpus,
    )
    base = replace(base, inter_link=network[:60], inter_known=rate is not None)
    reach = nvlink_reach(intra, per_node, cards=max(2, gpu.nvlink_domain_gpus))
    if reach is None or (reach > 1 and not gpu.nvlink_bytes_per_s):
        return base
    rate_inside = gpu.nvlink_bytes_per_s if reach > 1 else gpu.peer_bytes_per_s or gpu.pcie_bytes_per_s
    return replace(base, nvlink_domain_gpus=reach, intra_bytes_per_s=rate_inside)


def _power_w(row: Row, gpu: Gpu, machine: NodeShape | None) -> float | None:
    """The power limit of a GPU: as stated, as its name says ("H100 500W"), or as set on the machine."""
    named = re.search(r"\b(\d{2,4})\s?W\b", fields.text(row, "gpu"))
    stated = fields.number(row, "gpu_power_w") or (float(named.group(1)) if named else 0.0)
    return stated or (machine.power_w if machine else 0.0) or None


def nvlink_reach(cell: str, gpus_per_node: int, cards: int) -> int | None:
    """GPUs that the stated fast link joins: 1 where PCIe is the only link, None where none is stated.

    A domain of several nodes has its size ("NVL72"). Any other joins the `cards` that the part's link can
    join: two or four with a bridge, any node with switches, a rack.
    """
    cell = cell.lower()
    rack = re.search(r"\bnvl ?-?(\d{1,3})\b", cell)
    if rack:
        return max(1, int(rack.group(1)))
    linked = re.search(r"nv-?link|nv-?switch|xgmi|infinity fabric", cell)
    if linked and not re.search(r"no nv-?link|without nv-?link", cell):
        return max(gpus_per_node, cards if cards > 8 else 1) if gpus_per_node <= cards or cards >= 8 else 1
    return 1 if linked or "pcie" in cell or "none" in cell else None


def _states_rate(cell: str) -> bool:
    """True if a cell about the network states a rate, not only a kind of link."""
    return bool(_RATE.search(_compute_clause(cell)))


def link_bytes_per_s(cell: str, gpus_per_node: int) -> float | None:
    """Bytes per second between nodes, per GPU, from a cell such as "4x InfiniBand HDR per node (800 Gb/s)".

    A rate is the node's total if the cell says so, counts NICs, or exceeds any single NIC (1,000 Gb/s);
    otherwise each GPU has one such NIC. Clauses about storage, management and PCIe are ignored.
    """
    clause = _compute_clause(cell)
    gbps = _gbps_per_node(clause, gpus_per_node)
    return None if gbps is None else gbps / 8.0 * 1e9 / max(1, gpus_per_node)


def _compute_clause(cell: str) -> str:
    """The clause about the compute network, without storage, management and the host's own bus."""
    clauses = [c for c in re.split(r"[;,+]| and ", cell) if c.strip()]
    compute = [c for c in clauses if re.search(r"compute|\bew\b|gpu fabric", c, re.I)]
    rest = [c for c in clauses if not re.search(r"storage|management|pcie|\bns\b|nic:", c, re.I)]
    fast = [c for c in rest if re.search(r"infiniband|\bib\b|roce|rdma", c, re.I)]
    return ", ".join(compute or fast or rest)


def _gbps_per_node(clause: str, gpus_per_node: int) -> float | None:
    """Gigabits per second out of one node."""
    clause = _SPEEDS.sub("", clause)
    per_gpu = re.search(r"per gpu|/gpu", clause, re.I)
    match = _RATE.search(clause)
    nics = _NICS.search(clause)
    if not match:
        whole = next((rate for sign, rate in _NODE_GBPS if re.search(sign, clause, re.I)), None)
        if whole:
            return whole
        nic_gbps = next((rate for sign, rate in _NIC_GBPS if re.search(sign, clause, re.I)), None)
        return None if nic_gbps is None else nic_gbps * (int(nics.group(1)) if nics else gpus_per_node)
    rate = float(match.group(2)) * (8.0 if _is_bytes(match.group(3), clause) else 1.0)
    if per_gpu:
        return rate * gpus_per_node
    stated_total = re.search(r"per node|/node|\befa\b", clause, re.I) or rate >= 1000.0
    before = clause[: match.start(2)]
    if match.group(1) and not (stated_total and before.count("(") > before.count(")")):
        return rate * int(match.group(1))
    if stated_total or "ethernet" in clause.lower():
        return rate
    return rate * (int(nics.group(1)) if nics else gpus_per_node)


def _is_bytes(unit: str, clause: str) -> bool:
    """True for "GB/s" (bytes), except on Ethernet, which is always sold in gigabits."""
    return unit == "GB/s" and not re.search(r"ethernet", clause, re.I)
