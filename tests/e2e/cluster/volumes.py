"""Shared storage, as an NFS provisioner would give it: a folder for each claim of the class `shared`.

The nodes are one machine, so a folder of it is the same on each of them. Runs as a daemon of the cluster.
"""

import json
import subprocess
import sys
import time
from typing import Any

import kubectl
from place import ClusterError, Place, place

CLASS = "shared"
COLUMNS = (
    "custom-columns=PHASE:.status.phase,CLASS:.spec.storageClassName,NS:.metadata.namespace,N:.metadata.name"
)
AGAIN_S = 1.0


def _volume(at: Place, claim: dict[str, Any]) -> dict[str, Any]:
    """The volume for a claim, bound to it and no other."""
    metadata, spec = claim["metadata"], claim["spec"]
    folder = at.state / "volumes" / metadata["uid"]
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)  # for any user of any pod, as an export without root squashing is
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{CLASS}-{metadata['uid']}"},
        "spec": {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder)},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        },
    }


def _provide(at: Place, namespace: str, name: str) -> None:
    claim = json.loads(
        kubectl.run(at, "get", "persistentvolumeclaim", name, "--namespace", namespace, "--output=json")
    )
    kubectl.run(at, "apply", "--server-side", "--filename", "-", text=json.dumps(_volume(at, claim)))


def _watch(at: Place) -> None:
    """Provide for every pending claim until the watch ends."""
    claims = ("get", "persistentvolumeclaims", "--all-namespaces", "--watch", "--no-headers")
    command = kubectl.command(at, *claims, f"--output={COLUMNS}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        for line in watching.stdout or ():
            phase, storage_class, namespace, name = line.split()
            if (phase, storage_class) == ("Pending", CLASS):
                try:
                    _provide(at, namespace, name)
                except ClusterError as error:  # the claim went away, or the API server did
                    sys.stderr.write(f"{error}\n")


def main() -> None:
    """For ever: the API server may go and come back."""
    at = place()
    while True:
        _watch(at)
        time.sleep(AGAIN_S)


if __name__ == "__main__":
    main()
