"""The operator process: in a cluster with its service account, or outside with a kubeconfig."""

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Coroutine
from dataclasses import field
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio import client, config
from kubernetes.aio.config import ConfigException

from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable
from rightsizer_operator.cluster.client import KubeClient, api_client
from rightsizer_operator.runtime.controller import Controller
from rightsizer_operator.runtime.leader import run_elected
from rightsizer_operator.runtime.logs import set_up
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_operator.runtime.probes import serving
from rightsizer_operator.runtime.prometheus import collect
from rightsizer_operator.runtime.scraper import scrape
from rightsizer_operator.runtime.watches import KopfWatch, Watch
from rightsizer_operator.values.settings import OperatorSettings
from rightsizer_telemetry.client import PrometheusSettings

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_ODD_TYPES = (AttributeError, LookupError, TypeError, ValueError, yaml.YAMLError)
"""What the client raises of a kubeconfig with anything else in it: it checks no types."""


@immutable
class OperatorOptions:
    """Process options. `namespaces` empty: all. `lease_namespace` empty: the pod's own, else default."""

    namespaces: tuple[str, ...] = ()
    lease_name: str = "rightsizer-operator"
    lease_namespace: str = ""
    port: int = 8080
    log_format: str = "text"
    prometheus: PrometheusSettings | None = None
    settings: OperatorSettings = field(default_factory=OperatorSettings)


def run(options: OperatorOptions) -> int:
    """Run until stopped; the exit code."""
    set_up(options.log_format)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(options))
    return 0


async def _run(options: OperatorOptions) -> None:
    metrics = Metrics()
    async with await _api() as api:
        kube = KubeClient(api, metrics, dry_run=options.settings.dry_run)
        controller = Controller(kube, metrics, options.settings, options.namespaces)
        leading = controller.lead() if options.settings.dry_run else _run_elected(kube, controller, options)
        async with serving(
            controller, metrics, port=options.port, max_relist_age_s=4 * options.settings.refresh_s
        ):
            collecting = [collect(controller, options.prometheus)] if options.prometheus else []
            watch: Watch = KopfWatch(controller, options.namespaces)
            working = (watch.run(), leading, scrape(controller), *collecting)
            tasks = [asyncio.create_task(task) for task in working]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                controller.close()
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
        for result in ended:
            if isinstance(result, Exception):
                raise result


def _run_elected(
    kube: KubeClient, controller: Controller, options: OperatorOptions
) -> Coroutine[Any, Any, None]:
    return run_elected(
        kube,
        name=options.lease_name,
        namespace=options.lease_namespace or _namespace(),
        identity=f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
        lead=controller.lead,
    )


async def _api() -> client.ApiClient:
    logging.getLogger("kubernetes.aio.config").setLevel(logging.ERROR)  # the error below says it
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ and not os.environ.get("KUBECONFIG"):
            config.load_incluster_config()
        else:
            await config.load_kube_config(config_file=os.environ.get("KUBECONFIG") or None)
    except (ConfigException, OSError, *_ODD_TYPES) as error:
        said = error if isinstance(error, ConfigException | OSError) else "is not a kubeconfig"
        remedy = f"{said}; run in a cluster, or set KUBECONFIG"
        raise InputError("KUBECONFIG", value=os.environ.get("KUBECONFIG"), remedy=remedy) from None
    return api_client(client.Configuration.get_default_copy())


def _namespace() -> str:
    return _OWN_NAMESPACE.read_text().strip() if _OWN_NAMESPACE.exists() else "default"
