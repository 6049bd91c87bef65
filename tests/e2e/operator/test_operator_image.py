"""The operator runs from the image that deploy/images makes, not from the checkout."""

import pytest

pytestmark = pytest.mark.kubernetes


def _pods(cluster, operator):
    return cluster.api.get("pods", namespace=operator)["items"]


def test_the_pods_run_the_image_that_was_built(cluster, operator, operator_image):
    _, digest = operator_image
    images = {c["image"] for pod in _pods(cluster, operator) for c in pod["spec"]["containers"]}
    assert [image.partition("@")[2] for image in images] == [digest]


def test_the_pods_see_neither_the_checkout_nor_this_machine_s_programs(cluster, operator):
    pod = _pods(cluster, operator)[0]["metadata"]["name"]
    script = "import os, rightsizer; print(rightsizer.__file__, os.getuid(), os.path.exists('/usr/bin/gcc'))"
    said = cluster.kubectl("exec", "--namespace", operator, pod, "--", "python3", "-c", script)
    assert said.split() == [
        "/usr/local/lib/python3.11/dist-packages/rightsizer/__init__.py",
        "65532",
        "False",
    ]
