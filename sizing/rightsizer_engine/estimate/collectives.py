"""Groups of ranks, and seconds of collectives and transfers on the links between them.

Legend: n ranks of a group, r of them inside one fast domain (NVLink, xGMI, or a PCIe host), w = n / r
domains, S bytes of the full payload, B_in and B_out achieved bytes/s of one GPU inside and between domains
(one direction).

Ring gather or scatter (one pass; an all-reduce is two): every rank moves S (n-1)/n. Between domains the
group's r GPUs of a node drive r NICs in parallel, so the outer rate is r B_out; the slower of the
two limits:

    t = S (n-1)/n / min(B_in, r B_out) + latency

Latency per pass: one constant. Large messages leave NCCL's low-latency protocol, which adds a step (seen in
nccl-tests and in vTrain's tables near 12 MB) that grows with the ring's length and shrinks with the link's
speed.
"""

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array, Columns, text_matches
from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.values import immutable

_STEP_BYTES = 12e6
_STEP_REFERENCE_BYTES_PER_S = 3e11
_OMNI_PATH = 0.42  # a node of Jean Zay reached 135 of its 400 Gbit/s: 0.34, where InfiniBand reaches 0.8
_DATAGRAMS = 0.92  # EFA: 0.74 of the line rate (nccl-tests, 4 nodes of p6-b200), where InfiniBand reaches 0.8


@immutable
class Links:
    """Achieved rates of one GPU in one direction, and the GPUs in reach of the fast link."""

    inside_bytes_per_s: Array
    between_bytes_per_s: Array
    line_bytes_per_s: Array
    reach_gpus: Array
    switched: Array
    datagrams: Array


@immutable
class RankGroup:
    """A group of ranks: their number, those in one domain, and the number of domains."""

    ranks: Array
    inside: Array
    domains: Array


def links(cases: Cases, parameters: Parameters) -> Links:
    """The links of each case's cluster."""
    cluster = cases.cluster
    switched = cluster.nvlink_domain_gpus > 1
    fraction = np.where(switched, parameters.nvlink_fraction, parameters.pcie_fraction)
    between = np.where(cluster.inter_bytes_per_s > 0, cluster.inter_bytes_per_s, 2.5e10)
    datagrams = text_matches(cluster.inter_link, lambda name: "efa" in name.lower())
    path = text_matches(cluster.inter_link, lambda name: "omni-path" in name.lower())
    between = between * np.where(path, _OMNI_PATH, np.where(datagrams, _DATAGRAMS, 1.0))
    return Links(
        inside_bytes_per_s=np.asarray(np.maximum(cluster.intra_bytes_per_s, 1e9) * fraction),
        between_bytes_per_s=np.asarray(between * parameters.nic_fraction),
        line_bytes_per_s=cluster.intra_bytes_per_s,
        reach_gpus=np.where(switched, cluster.nvlink_domain_gpus, cluster.gpus_per_node),
        switched=np.asarray(switched),
        datagrams=datagrams,
    )


def group(links: Links, ranks: Array, stride: Array | float = 1.0) -> RankGroup:
    """`ranks` ranks, each `stride` GPUs from the next (tensor parallel innermost, then context, data)."""
    inside = np.minimum(np.maximum(links.reach_gpus / stride, 1.0), ranks)
    return RankGroup(
        ranks=ranks, inside=np.asarray(inside), domains=np.asarray(np.maximum(ranks / inside, 1.0))
    )


def shard_ranks(layout: Columns) -> Array:
    """Ranks that share the sharded states."""
    everyone = layout.dp * layout.cp
    return np.asarray(np.where(layout.shard_group > 0, np.minimum(layout.shard_group, everyone), everyone))


def expert_replicas(layout: Columns) -> Array:
    """Ranks that hold the same experts."""
    split = np.maximum(layout.ep, 1) * np.maximum(layout.expert_tp, 1)
    return np.asarray(np.maximum(layout.dp * layout.cp * layout.tp / split, 1))


def expert_shard_ranks(layout: Columns) -> Array:
    """Ranks of one shard group that hold the same experts and share their states."""
    share = shard_ranks(layout) / (layout.dp * layout.cp)
    return np.asarray(np.maximum(expert_replicas(layout) * share, 1))


def ring_s(
    payload_bytes: Array,
    group: RankGroup,
    links: Links,
    parameters: Parameters,
    *,
    passes: float = 1.0,
) -> Array:
    """Seconds of a gather or scatter (`passes` = 1) or an all-reduce (2) of `payload_bytes` in full."""
    n, between_domains = group.ranks, group.domains > 1
    outer = links.between_bytes_per_s * group.inside
    rate = np.where(between_domains, np.minimum(links.inside_bytes_per_s, outer), links.inside_bytes_per_s)
    wire = payload_bytes * (n - 1) / np.maximum(n, 1) / rate
    step = parameters.ring_step_s * _STEP_REFERENCE_BYTES_PER_S / np.maximum(links.line_bytes_per_s, 1e9)
    step = step * np.where(links.switched, np.clip((group.inside - 2) / 6, 0, 1), 0.0) / 2
    small = _STEP_BYTES / (payload_bytes + 1.0)
    cube = small * small * small  # `**` takes ten times as long
    step = step / (1 + cube * cube)
    return np.asarray(np.where(n > 1, passes * (wire + parameters.ring_latency_s + step), 0.0))


def all_to_all_s(
    payload_bytes: Array, once_per_domain_bytes: Array, group: RankGroup, links: Links, parameters: Parameters
) -> Array:
    """Seconds of an all-to-all of `payload_bytes` per rank; `once_per_domain_bytes` leave the domain."""
    share = np.where(group.inside > 1, (group.inside - 1) / np.maximum(group.inside, 1), 0.0)
    inside = payload_bytes * share / links.inside_bytes_per_s
    outside = np.where(group.domains > 1, once_per_domain_bytes, 0.0) / links.between_bytes_per_s
    latency = 2 * parameters.ring_latency_s
    return np.asarray(np.where(group.ranks > 1, inside + outside + latency, 0.0))


def send_s(
    payload_bytes: Array, crosses: Array, sharing: Array, links: Links, parameters: Parameters
) -> Array:
    """Seconds of one point-to-point message, inside a domain or (`crosses`) between domains.

    `sharing` ranks of a node send at the same time. One message uses few channels: on a network of unordered
    datagrams (EFA) a node's messages share a low rate.
    """
    rate = links.between_bytes_per_s
    datagrams = parameters.p2p_srd_bytes_per_s / np.maximum(sharing, 1.0)
    rate = np.where(links.datagrams, np.minimum(rate, datagrams), rate)
    outside = payload_bytes / rate
    inside = payload_bytes / links.inside_bytes_per_s
    return np.asarray(np.where(crosses, outside, inside) + parameters.ring_latency_s)
