"""The nodes that a plan states, as clusters of the engine."""

from rightsizer_api.plan import TrainingPlan
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.hardware import MOST_GPUS, Cluster
from rightsizer_engine.units import parse_link_bytes_per_s, parse_network_bytes_per_s, parse_usd
from rightsizer_engine.values import immutable


@immutable
class StatedHardware:
    """The links, power and price that a plan states; None: as in the catalog."""

    inter_node: str | float | None = None
    intra_bytes_per_s: float | None = None
    power_w: float | None = None
    price: float | None = None

    def cluster(
        self, gpu: str, gpus_per_node: int, *, nodes_shape: str | None = None, max_gpus: int = MOST_GPUS
    ) -> Cluster:
        """GPUs in nodes of that size, with the stated values."""
        rate, path = self.inter_node, "spec.resources.interconnect.interNodeGBps"
        between = (
            None if rate is None else parse_network_bytes_per_s(rate, field=path, gpus_per_node=gpus_per_node)
        )
        return lookup.cluster(
            gpu,
            gpus_per_node=gpus_per_node,
            nodes_shape=nodes_shape,
            inter_bytes_per_s=between,
            intra_bytes_per_s=self.intra_bytes_per_s,
            power_w=self.power_w,
            max_gpus=max_gpus,
            price=self.price,
        )


def stated_hardware(plan: TrainingPlan) -> StatedHardware:
    """The hardware that a plan states."""
    resources, budget = plan.spec.resources, plan.spec.budget
    links = resources.interconnect
    intra = links.intra_node_gbps if links else None
    path = "spec.resources.interconnect.intraNodeGBps"
    price = budget.usd_per_gpu_hour if budget else None
    return StatedHardware(
        inter_node=links.inter_node_gbps if links else None,
        intra_bytes_per_s=None if intra is None else parse_link_bytes_per_s(intra, field=path),
        power_w=resources.gpu_power_watts,
        price=None if price is None else parse_usd(price),
    )
