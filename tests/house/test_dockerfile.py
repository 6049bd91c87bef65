"""The Dockerfile, read line by line: no builder runs here."""

import re
import sys
import tomllib

import pytest
from tests.house.test_house import ROOT
from tests.house.test_images import pins

sys.path.append(str(ROOT))  # deploy is run from the repository, not installed
from deploy.images import wheels
from deploy.images.build import NON_ROOT, images

TEXT = (ROOT / "Dockerfile").read_text()
LINES = [line for line in TEXT.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
STEPS = [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in LINES]


def steps(kind):
    return [rest for word, rest in STEPS if word == kind]


def sources():
    """Files and folders that come from the checkout, not from another stage."""
    return [word for rest in steps("COPY") if "--from" not in rest for word in rest.split()[:-1]]


def test_every_step_is_one_that_a_builder_knows():
    assert {word for word, _ in STEPS} <= {
        "ARG",
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "ENTRYPOINT",
    }


def test_the_base_is_an_argument_of_the_images_python():
    assert STEPS[0] == ("ARG", f"BASE=python:{wheels.PYTHON}-slim-bookworm")
    assert steps("FROM") == ["${BASE} AS build", "${BASE}"]


@pytest.mark.parametrize("source", sources())
def test_what_is_copied_exists_and_is_not_ignored(source):
    assert (ROOT / source).exists()
    assert source not in (ROOT / ".dockerignore").read_text().split()


def test_all_packages_of_the_wheel_are_copied():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    named = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    assert {package.split("/")[0] for package in packages} | named <= set(sources())


def test_everything_from_an_index_is_installed_by_hash():
    installs = re.findall(r"pip install ([^&]*)", " ".join(steps("RUN")))
    assert len(installs) > 2
    for install in installs:
        assert "--require-hashes" in install or "--no-deps /wheels/" in install
    locks = [word for word in sources() if word.endswith(".lock")]
    assert set(locks) == {"deploy/images/build.lock", str(images()["operator"].lock.relative_to(ROOT))}
    assert all(pins((ROOT / lock).read_text()) for lock in locks)


def test_it_runs_as_the_image_of_our_own_writer_does():
    entry = "[" + ", ".join(f'"{word}"' for word in images()["operator"].entrypoint) + "]"
    assert steps("ENTRYPOINT") == [entry]
    assert steps("USER") == [f"{NON_ROOT}:{NON_ROOT}"]
    assert steps("WORKDIR")[-1] == "/"
