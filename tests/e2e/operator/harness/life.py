"""A plan's life against the real API server and controllers; the test acts as scheduler and kubelet."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from api_client import ApiClient

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "02-kubernetes" / "plan.yaml"
MEASURED = {"MetricsAvailable", "DeadlineAtRisk", "OverProvisioned"}
"""Conditions that depend on the workers' metrics."""
OURS = "labelSelector=app.kubernetes.io/managed-by=rightsizer"
PLANS = "/apis/rightsizer.dev/v1alpha1/namespaces/{}/trainingplans"
KINDS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Service": "/api/v1/namespaces/{}/services",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
}


class SimulatedRun:
    """A plan whose pods the test reports as running. Every wait ends by asserting the invariants."""

    def __init__(self, api: ApiClient, namespace: str, name: str, **launch: Any) -> None:
        self.api, self.namespace, self.name = api, namespace, name
        self.plan = next(yaml.safe_load_all(EXAMPLE.read_text()))
        self.plan["metadata"]["name"] = name
        spec = self.plan["spec"]
        spec["workload"]["tokens"], spec["deadline"]["finishWithin"] = "100M", "100h"
        spec["resources"]["gpus"] = 1
        spec["launch"].update(launch)
        self.address = ""  # of its pods, if they are to be scraped
        self.path = f"{PLANS.format(namespace)}/{name}"

    # --- what is seen ---

    def ours(self, path: str, selector: str = OURS) -> list[dict[str, Any]]:
        """Objects of this plan."""
        items = self.api("GET", f"{path.format(self.namespace)}?{selector}")["items"]
        return [item for item in items if item["metadata"]["labels"]["rightsizer.dev/plan"] == self.name]

    @property
    def now(self) -> dict[str, Any]:
        """The plan's present state."""
        return self.api("GET", self.path)

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """Its Jobs."""
        return self.ours(KINDS["Job"])

    @property
    def pods(self) -> list[dict[str, Any]]:
        """Its workers."""
        selector = f"labelSelector=rightsizer.dev/plan={self.name},rightsizer.dev/role=worker"
        return self.ours("/api/v1/namespaces/{}/pods", selector)

    @staticmethod
    def condition(plan: dict[str, Any], kind: str) -> dict[str, Any]:
        """A condition of the plan's."""
        found = (c for c in plan.get("status", {}).get("conditions", ()) if c["type"] == kind)
        return next(found, {"status": None, "reason": None, "message": ""})

    # --- what is done ---

    def create(self) -> None:
        """Create the plan."""
        self.api("POST", PLANS.format(self.namespace), self.plan)

    def edit(self, **spec: Any) -> None:
        """Change the plan's spec."""
        self.api.patch(self.path, {"spec": spec})

    def delete(self) -> None:
        """Delete the plan, and see that nothing of it is left."""
        self.api("DELETE", self.path)
        left = lambda: [o for path in KINDS.values() for o in self.ours(path)]
        self.wait("nothing is left", lambda: not left() and not self.pods, 180)

    def run_pods(self) -> None:
        """Let every pod run and be ready, as a kubelet would report."""
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        stores = "labelSelector=rightsizer.dev/role=rendezvous"
        for pod in (*self.pods, *self.ours("/api/v1/namespaces/{}/pods", stores)):
            if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Pending":
                worker = pod["metadata"]["labels"]["rightsizer.dev/role"] == "worker"
                address = self.address if worker else ""
                where = {"podIP": address, "podIPs": [{"ip": address}]} if address else {}
                self._say(pod, {"phase": "Running", "conditions": [ready], **where})

    def end_pods(self) -> None:
        """Let every worker succeed."""
        for pod in self.pods:
            self._say(pod, {"phase": "Succeeded"})

    def _say(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        self.api.patch(path, {"status": status})

    # --- what must hold ---

    def until(self, state: str, *, attempt: int = 1, gpus: int = 1, within_s: float = 180) -> None:
        """Wait for a state of this attempt at this size, while pods run; then see that all is right."""

        def there() -> bool:
            self.run_pods()
            plan = self.now
            at = plan.get("status", {}).get("attempt", {})
            return (self.condition(plan, "Ready")["reason"], at.get("number"), at.get("gpus")) == (
                state,
                attempt,
                gpus,
            ) and plan["status"]["observedGeneration"] == plan["metadata"]["generation"]

        self.wait(f"{state}, attempt {attempt}, {gpus} GPUs", there, within_s)
        self.wait("nothing amiss", lambda: not self.amiss(state, attempt, gpus), within_s)

    def amiss(self, state: str, attempt: int, gpus: int) -> list[str]:
        """Differences from the expected state: not exactly one Job, an orphan, a wrong size or status."""
        plan, jobs = self.now, self.jobs
        ended, stopped = state in {"Complete", "Failed"}, state == "Suspended"
        found = []
        names = [job["metadata"]["name"] for job in jobs]
        if names != [f"{self.name}-a{attempt}"]:
            return [f"Jobs {names}"]
        (job,) = jobs
        if job["spec"]["parallelism"] != gpus or job["spec"]["completions"] != gpus:
            found.append(f"parallelism {job['spec']['parallelism']}")
        if bool(job["spec"].get("suspend")) != stopped:
            found.append("suspended, or not")
        pods = [p["metadata"]["labels"]["rightsizer.dev/attempt"] for p in self.pods]
        if not ended and pods != [str(attempt)] * (0 if stopped else gpus):
            found.append(f"pods of attempts {pods}")
        for kind, wanted in (("Service", not ended), ("ReplicaSet", not ended)):
            if [o["metadata"]["name"] for o in self.ours(KINDS[kind])] != [f"{self.name}-rdzv"] * wanted:
                found.append(kind)
        maps = {o["metadata"]["name"] for o in self.ours(KINDS["ConfigMap"])}
        if maps - {f"{self.name}-a{n}" for n in range(1, attempt + 1)}:
            found.append(f"ConfigMaps {maps}")
        owners = {
            owner["uid"]
            for path in KINDS.values()
            for each in self.ours(path)
            for owner in each["metadata"]["ownerReferences"]
        }
        if owners != {plan["metadata"]["uid"]}:
            found.append(f"owners {owners}")
        return found + self._status_amiss(plan, state)

    def _status_amiss(self, plan: dict[str, Any], state: str) -> list[str]:
        holds = {c["type"] for c in plan["status"]["conditions"] if c["status"] == "True"}
        holds -= MEASURED if self.address else set()
        wanted = {
            "Running": {"Ready", "Accepted", "Sized", "Admitted", "Running"},
            "Suspended": {"Accepted", "Sized"},
            "Complete": {"Ready", "Accepted", "Sized", "Admitted", "Complete"},
        }[state]
        return [] if holds == wanted else [f"conditions {sorted(holds)}"]

    def wait(self, what: str, condition: Callable[[], bool], within_s: float) -> None:
        end_s = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > end_s:
                plan, jobs = self.now, [job["metadata"]["name"] for job in self.jobs]
                raise AssertionError(
                    f"{what}: not within {within_s:.0f} s; Jobs {jobs}; {plan.get('status')}"
                )
            time.sleep(0.2)  # six lives ask at once, and the API server is to serve the operators
