"""The whole process in one of its own, against a stand-in for the API server that speaks HTTP."""

import asyncio
import contextlib
import datetime as dt
import json
import os
import signal
import subprocess
import sys

import aiohttp
import pytest
from aiohttp import web

from rightsizer_launch.worker.rendezvous import free_port

OPERATOR = """
import sys
from rightsizer_engine.errors import InputError
from rightsizer_operator.runtime.main import OperatorOptions, run
from rightsizer_telemetry.client import PrometheusSettings
try:
    sys.exit(run(OperatorOptions(port=int(sys.argv[1]), prometheus=PrometheusSettings(url=sys.argv[2]))))
except InputError as error:
    sys.exit(f"{error.field}: {error}")
"""
PLAN = "/apis/rightsizer.dev/v1alpha1/namespaces/team/trainingplans/demo"
JOB = "/apis/batch/v1/namespaces/team/jobs/demo-a1"
NODE = {
    "metadata": {"labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
RESOURCES = {
    "/api/v1": {"nodes": ("Node", False), "namespaces": ("Namespace", False)},
    "/apis/apps/v1": {"replicasets": ("ReplicaSet", True)},
    "/apis/batch/v1": {"jobs": ("Job", True)},
    "/apis/rightsizer.dev/v1alpha1": {"trainingplans": ("TrainingPlan", True)},
    "/apis/apiextensions.k8s.io/v1": {"customresourcedefinitions": ("CustomResourceDefinition", False)},
}
LONG_S = 90.0  # on a busy machine; nothing here waits for it


def discovery(path):
    """An API server's groups and resources; None for other paths."""
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        versions = [tuple(group.split("/")[2:]) for group in RESOURCES if group.startswith("/apis/")]
        listed = [
            (name, {"groupVersion": f"{name}/{version}", "version": version}) for name, version in versions
        ]
        return {"groups": [{"name": n, "versions": [v], "preferredVersion": v} for n, v in listed]}
    if path in RESOURCES:
        verbs = ["get", "list", "watch", "create", "patch", "delete"]
        return {
            "resources": [
                {
                    "name": name,
                    "singularName": kind.lower(),
                    "kind": kind,
                    "namespaced": inside,
                    "verbs": verbs,
                }
                for name, (kind, inside) in RESOURCES[path].items()
            ]
        }
    return None


class ServedApi:
    """The stand-in of conftest.py behind HTTP, with discovery and watches."""

    def __init__(self, api):
        self.api, self.watches = api, {}
        api.told = self.tell

    def tell(self, path, thing):
        for events in self.watches.get(path.split("/")[-2], ()):
            events.put_nowait({"type": "MODIFIED", "object": thing})

    async def answer(self, request):
        if request.method == "GET" and (document := discovery(request.path)) is not None:
            return web.json_response(document)
        if "watch" in request.query:
            return await self.watch(request)
        body = json.loads(await request.read() or b"null")
        query = {"query": dict(request.query)}
        answer = await self.api.call_api(request.method, request.path, query, body, _request_timeout=None)
        document = json.loads(await answer.read())
        if document.get("items", ()) is None:
            document["items"] = []  # kopf, unlike our client, does not take null for an empty list
        return web.json_response(document, status=answer.status)

    async def watch(self, request):
        response, events = web.StreamResponse(), asyncio.Queue()
        self.watches.setdefault(request.path.rpartition("/")[2], []).append(events)
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(json.dumps(await events.get()).encode() + b"\n")

    @contextlib.asynccontextmanager
    async def serving(self, tmp_path):
        """Serve inside; gives the KUBECONFIG for it."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner, port = web.AppRunner(app, shutdown_timeout=0.1), free_port()
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        named = {"name": "x"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "clusters": [named | {"cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [named | {"user": {"token": "t"}}],
            "contexts": [named | {"context": {"cluster": "x", "user": "x"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config))
        yield path
        await runner.cleanup()


@contextlib.contextmanager
def operator(kubeconfig, port, errors):
    """The operator's process, with an unresponsive Prometheus; its errors go to that file."""
    argv = [sys.executable, "-c", OPERATOR, str(port), f"http://127.0.0.1:{free_port()}"]
    clean = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
    with errors.open("w") as file:
        process = subprocess.Popen(argv, env=clean | {"KUBECONFIG": str(kubeconfig)}, stderr=file)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def healthy(port):
    with contextlib.suppress(aiohttp.ClientError):
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/healthz") as response:
            return response.status == 200
    return False


@pytest.mark.slow
def test_the_operator_takes_the_lease_launches_plans_that_its_watches_show_and_ends_on_sigterm(
    fake_api, fake_cluster, tmp_path
):
    fake_api.put("/api/v1/nodes/n0", NODE)
    plan = fake_cluster().plan
    plan["metadata"]["creationTimestamp"] = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    served, port, errors = ServedApi(fake_api), free_port(), tmp_path / "errors"

    async def until(process, condition):
        while not condition():
            assert process.poll() is None, errors.read_text()
            await asyncio.sleep(0.05)

    async def scenario():
        async with served.serving(tmp_path) as kubeconfig, asyncio.timeout(LONG_S):
            with operator(kubeconfig, port, errors) as process:
                await until(
                    process,
                    lambda: {"trainingplans", "jobs", "nodes", "replicasets"} <= served.watches.keys(),
                )
                while not await healthy(port):
                    await asyncio.sleep(0.05)
                fake_api.put(PLAN, plan)  # after the first relist: only a watch shows it
                await until(process, lambda: JOB in fake_api.objects)
                fake_api.put(JOB, fake_api.objects[JOB] | {"status": {"active": 2, "ready": 2}})
                await until(process, lambda: '"Running"' in json.dumps(fake_api.objects[PLAN]["status"]))
                process.send_signal(signal.SIGTERM)
                return await asyncio.to_thread(process.wait, LONG_S)

    assert asyncio.run(scenario()) == 0
    assert any("/leases" in path for method, path, _ in fake_api.requests if method == "POST")


@pytest.mark.slow
def test_without_a_kubeconfig_the_process_ends_with_the_remedy(tmp_path):
    errors = tmp_path / "errors"
    with operator(tmp_path / "none", free_port(), errors) as process:
        assert process.wait(LONG_S) == 1
    message = errors.read_text().splitlines()[-1]
    assert message.startswith("KUBECONFIG: ")
    assert message.endswith("run in a cluster, or set KUBECONFIG")
