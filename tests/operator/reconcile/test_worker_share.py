import pytest

from rightsizer_operator.values.kueue import Queue
from rightsizer_operator.values.requests import Allowance, Loads

GIB = 2.0**30
FREE = Allowance()
SHM = "/dev/shm"  # noqa: S108 -- a pod's own
MEASURED = {"cpu": "9600m", "memory": "76800Mi"}  # four fifths of an eighth of the node
TRAINER = {"name": "trainer"}
GPUS = {"nvidia.com/gpu": 1}


@pytest.fixture
def worker(fake_cluster):
    """worker(template, **snapshot): the pod of a new plan on nodes of 96 cores and 750 GiB."""

    def make(template=None, *, loads=None, allowance=FREE, queue=None):
        cluster = fake_cluster({"launch": {"podTemplate": {"spec": template or {}}}})
        cluster.loads, cluster.allowance, cluster.queue = loads or Loads(known=True), allowance, queue
        for index, _ in enumerate(cluster.nodes):
            cluster.change_node(index, allocatable={"cpu": 96.0, "memory": 750 * GIB})
        return cluster.settle().job()["spec"]["template"]["spec"]

    return make


def trainer(pod):
    return next(each for each in pod["containers"] if each["name"] == "trainer")


def shm(pod):
    """The volume at /dev/shm of the trainer."""
    (name,) = (m["name"] for m in trainer(pod)["volumeMounts"] if m["mountPath"].rstrip("/") == SHM)
    return next(volume for volume in pod["volumes"] if volume["name"] == name)


def test_a_worker_requests_its_share_of_the_node_and_is_limited_in_nothing_but_gpus(worker):
    assert trainer(worker())["resources"] == {"limits": GPUS, "requests": MEASURED}


def test_dev_shm_is_memory_up_to_half_of_the_worker_s_share(worker):
    assert shm(worker())["emptyDir"] == {"medium": "Memory", "sizeLimit": "48000Mi"}


def test_dev_shm_of_an_unknown_node_is_limited_by_its_memory(worker):
    assert shm(worker(loads=Loads()))["emptyDir"] == {"medium": "Memory"}


@pytest.mark.parametrize(
    ("template", "requests"),
    [
        ({"containers": [TRAINER | {"resources": {"requests": {"cpu": "1"}}}]}, MEASURED | {"cpu": "1"}),
        (
            {"containers": [TRAINER | {"resources": {"limits": {"memory": "9Gi"}}}]},
            {"cpu": MEASURED["cpu"]},
        ),
        ({"resources": {"limits": {"cpu": "4"}}}, {"memory": MEASURED["memory"]}),
        (
            {"containers": [TRAINER, {"name": "log", "resources": {"requests": {"cpu": "600m"}}}]},
            MEASURED | {"cpu": "9000m"},
        ),
    ],
    ids=["request", "limit", "pod", "sidecar"],
)
def test_what_the_template_states_is_left_to_it(worker, template, requests):
    assert trainer(worker(template))["resources"]["requests"] == requests


def test_a_volume_of_the_template_at_dev_shm_replaces_ours(worker):
    mount = {"name": "mine", "mountPath": f"{SHM}/"}
    volume = {"name": "mine", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    pod = worker({"containers": [TRAINER | {"volumeMounts": [mount]}], "volumes": [volume]})
    assert shm(pod) == volume
    assert [each["name"] for each in pod["volumes"] if "shm" in each["name"]] == []


def test_a_template_that_takes_the_node_s_dev_shm_gets_it(worker):
    pod = worker({"hostIPC": True})
    assert SHM not in [mount["mountPath"] for mount in trainer(pod)["volumeMounts"]]


COVERING = Queue(name="team", gpus=8, nominal_gpus=8, part={"cpu": 2.0, "memory": 9 * GIB})


@pytest.mark.parametrize(
    ("change", "requests"),
    [
        ({"loads": Loads()}, None),
        ({"allowance": None}, None),
        ({"allowance": Allowance(own_defaults=frozenset({"cpu"}))}, {"memory": MEASURED["memory"]}),
        ({"allowance": Allowance(left={"cpu": 0.15 - 0.05}, left_gpus=1)}, MEASURED | {"cpu": "100m"}),
        ({"queue": Queue(name="team", gpus=8, nominal_gpus=8)}, None),
        ({"queue": COVERING}, {"cpu": "2000m", "memory": "9216Mi"}),
        ({"queue": Queue(name="team", nominal_gpus=1, part={"cpu": 2.0})}, None),
        ({"queue": Queue(name="team", nominal_gpus=8, part={"cpu": 0.0})}, None),
    ],
    ids=[
        "unknown-pods", "unread-namespace", "limit-range", "quota", "a-queue-of-gpus-only", "a-queue-of-all",
        "borrowed", "a-queue-without-cpu",
    ],
)  # fmt: skip
def test_a_worker_requests_no_more_than_its_namespace_and_its_queue_allow(worker, change, requests):
    assert trainer(worker(**change))["resources"].get("requests") == requests
