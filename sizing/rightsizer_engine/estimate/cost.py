"""The cost of a run: GPU-hours in USD, and energy."""

import math

from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.hardware import Cluster

DRAW_FRACTION_OF_TDP = 0.85
"""Power draw of a training GPU over its TDP. A guess: large runs report 80 to 95 %."""

NODE_WATTS_PER_GPU_WATT = 1.35
"""CPUs, NICs, fans and switches beside the GPUs. A guess: a DGX H100 is rated 10.2 kW for 5.6 kW of GPUs."""


def price_usd_per_gpu_h(cluster: Cluster) -> float | None:
    """The cluster's own price, else the catalog's; None if neither is known."""
    price = cluster.price_usd_per_gpu_h
    if price is None:
        price = cluster.gpu.price_usd_per_gpu_h
    return None if price is None or math.isnan(price) else price


def usd(gpus: Array | int, wall_s: Array | float, price: float) -> Array | float:
    """Every GPU held for the whole time, spares included in `gpus`, at `price` USD per GPU-hour."""
    return gpus * wall_s / 3600.0 * price


def energy_kwh(gpus: int, wall_s: float, cluster: Cluster) -> float:
    """Energy of the nodes (not of the building: no PUE)."""
    watts = gpus * cluster.gpu.power_w * DRAW_FRACTION_OF_TDP * NODE_WATTS_PER_GPU_WATT
    return watts * wall_s / 3600.0 / 1000.0
