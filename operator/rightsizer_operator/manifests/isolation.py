"""Isolation of a plan's pods: the rendezvous key and network policies. Pure.

The key signs the rendezvous state (`rightsizer_launch.worker.signed_rendezvous`). It also protects plans on
clusters whose network does not enforce policies. The policies close the rest: the store to all but the plan's
workers, the workers to all but each other and those who read their metrics.
"""

from typing import Any

from rightsizer_launch.argv.torchrun import DEFAULT_PORT
from rightsizer_operator.manifests.objects import metadata
from rightsizer_operator.manifests.pod_spec import AttemptLaunch, labels, selector
from rightsizer_operator.values import names

Object = dict[str, Any]


def rendezvous_key(launch: AttemptLaunch) -> Object:
    """The Secret of an attempt's rendezvous key. The client fills it with random bytes when it creates it."""
    name = names.key_name(launch.plan.metadata.name, launch.attempt, launch.owner_uid)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(launch, name, labels(launch, names.RENDEZVOUS)),
        "type": "Opaque",
        "immutable": True,
    }


def network_policies(launch: AttemptLaunch) -> tuple[Object, ...]:
    """The policies for the rendezvous store and for the workers; none if the administrator disables them.

    Without `settings.metrics_from` everybody may read the metrics: the operator does not know who does.
    """
    if not launch.settings.network_policy:
        return ()
    workers = {"podSelector": {"matchLabels": selector(launch, names.WORKER)}}
    metrics: Object = {"ports": [{"port": names.METRICS_PORT, "protocol": "TCP"}]}
    if launch.settings.metrics_from:
        metrics["from"] = [dict(peer) for peer in launch.settings.metrics_from]
    store = {"from": [workers], "ports": [{"port": DEFAULT_PORT, "protocol": "TCP"}]}
    return (
        _policy(launch, names.RENDEZVOUS, [store]),
        _policy(launch, names.WORKER, [{"from": [workers]}, metrics]),
    )


def _policy(launch: AttemptLaunch, role: str, ingress: list[Object]) -> Object:
    name = f"{launch.plan.metadata.name}-{role}"
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(launch, name, labels(launch, role)),
        "spec": {
            "podSelector": {"matchLabels": selector(launch, role)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }
