"""GPU vendors: the resource that pods request and the node label that names the product. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rightsizer_engine.catalog import lookup
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.values import immutable
from rightsizer_operator.values.quantities import parse_quantity


@immutable
class Vendor:
    """`resource` is what the device plugin advertises, `product_label` what the node labeller sets."""

    resource: str
    product_label: str


NVIDIA = Vendor(resource="nvidia.com/gpu", product_label="nvidia.com/gpu.product")
AMD = Vendor(resource="amd.com/gpu", product_label="amd.com/gpu.product-name")
VENDORS = (NVIDIA, AMD)
_SLICE = re.compile(r"nvidia\.com/mig-[\w.]{1,63}")
"""A resource of NVIDIA's MIG strategy `mixed`: slices of one profile."""


def vendor_of(gpu_type: str) -> Vendor:
    """The vendor of the engine's GPU type."""
    return AMD if lookup.gpu(gpu_type).runs_rocm else NVIDIA


def vendors_of(gpu_types: Iterable[str]) -> tuple[Vendor, ...]:
    """The vendors of the GPU types that a plan names; all if it names none that is known."""
    try:
        return tuple({vendor_of(name): None for name in gpu_types}) or VENDORS
    except RightsizerError:
        return VENDORS


def gpus_in(resources: Mapping[str, Any]) -> int:
    """GPUs in a list of resources, of any vendor; a node or a pod has one vendor's."""
    return sum(parse_quantity(resources.get(vendor.resource, 0)) for vendor in VENDORS)


def slices_in(resources: Mapping[str, Any]) -> dict[str, int]:
    """MIG slices in a list of resources, by the resource of their profile."""
    found = ((name, parse_quantity(count)) for name, count in resources.items() if _SLICE.fullmatch(name))
    return {name: count for name, count in found if count}


def is_gpu(resource: str) -> bool:
    """Whether a resource is a GPU or a part of one."""
    return any(resource == vendor.resource for vendor in VENDORS) or bool(_SLICE.fullmatch(resource))
