"""Reads the devices of a DeviceClass and the claims of them."""

import logging
from collections.abc import Mapping
from typing import Any

from rightsizer_operator.cluster.client import ApiError, KubeClient
from rightsizer_operator.values.devices import GROUP, VERSIONS, DeviceClass, Devices

_LOG = logging.getLogger("rightsizer.operator")


async def read_devices(kube: KubeClient, device_class: str) -> Devices:
    """The devices of a class. None, with a warning, if the cluster lacks the API or the class."""
    api = await _api(kube)
    if not api:
        versions = " or ".join(VERSIONS)
        _LOG.warning("the API server does not serve %s/%s: no GPU can be claimed", GROUP, versions)
        return Devices(device_class=device_class)
    found = await _get(kube, f"/apis/{api}/deviceclasses/{device_class}")
    stated = DeviceClass.of(found) if found else None
    if stated is None or not stated.readable:
        why = "has a selector other than equalities joined by &&" if stated else "is missing"
        _LOG.warning("DeviceClass %s %s: no GPU can be claimed", device_class, why)
        return Devices(device_class=device_class, api=api)
    slices = [raw async for raw in kube.every(f"/apis/{api}/resourceslices")]
    claims = [raw async for raw in kube.every(f"/apis/{api}/resourceclaims")]
    return Devices.of(stated, slices, claims, api=api)


async def _api(kube: KubeClient) -> str:
    """The group and version to use; empty if none is served."""
    group = await _get(kube, f"/apis/{GROUP}")
    served = {each["version"] for each in group["versions"]} if group else set()
    return next((f"{GROUP}/{version}" for version in VERSIONS if version in served), "")


async def _get(kube: KubeClient, path: str) -> Mapping[str, Any] | None:
    try:
        return await kube.call("GET", path)
    except ApiError as error:
        if error.status == 404:
            return None
        raise
