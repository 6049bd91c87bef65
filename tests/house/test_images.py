"""The images: their locks, and that the same files give the same image. tests/e2e/operator runs them."""

import hashlib
import json
import os
import re
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # deploy is run from the repository, not installed
from deploy.images import debian, sbom
from deploy.images.build import images, main
from deploy.images.errors import BuildError
from deploy.images.layer_store import LayerStore
from deploy.images.oci import Layout, archive

ROOT = Path(__file__).parents[2]
LOCKS = (
    "requirements.lock",
    "deploy/images/build.lock",
    *(str(i.lock.relative_to(ROOT)) for i in images().values()),
)


def pins(lock):
    """The requirement lines of a lock, each with its hashes."""
    found = re.findall(
        r"^(\S+==[^\\\n]+?) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", lock, flags=re.M
    )
    return {name: tuple(re.findall(r"sha256:\w+", hashes)) for name, hashes in found}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_pins_with_hashes_and_no_address(name):
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert len(pins(text)) == sum(not line.startswith(("    --hash", "#")) for line in text.splitlines())


def test_the_operator_s_image_runs_what_the_tests_run():
    image, tested = (pins((ROOT / name).read_text()) for name in ("deploy/images/operator.lock", LOCKS[0]))
    versions = [
        {(pin.partition(" ;")[0], hashes) for pin, hashes in lock.items()} for lock in (image, tested)
    ]
    assert versions[0] <= versions[1]  # a package may be needed on one system here, and on all there


@pytest.mark.parametrize("image", images().values(), ids=lambda image: image.name)
def test_an_image_has_both_locks_and_a_base_of_its_packages(image):
    base = debian.locked(image.base_lock.read_text())
    assert {package.name for package in base} >= set(image.debian)
    assert pins(image.lock.read_text())


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="asks apt-get")
def test_a_version_that_debian_has_replaced_is_refused_with_the_remedy(tmp_path):
    gone = debian.Package(name="libc6", version="0.1", sha256="0" * 64)
    with pytest.raises(BuildError, match="run `make lock`"):
        debian.fetch([gone], tmp_path)


def test_a_damaged_base_lock_is_refused():
    with pytest.raises(BuildError, match="make lock"):
        debian.locked("libc6=2.36\n")


def test_a_file_with_another_hash_than_the_lock_is_refused_and_removed(tmp_path):
    package = debian.Package(name="libc6", version="2.36", sha256="0" * 64)
    (tmp_path / f"{package.sha256}.deb").write_text("other")
    with pytest.raises(BuildError, match=r"libc6 2\.36: its file has another hash"):
        debian.fetch([package], tmp_path)
    assert not list(tmp_path.iterdir())


def _tree(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "link").symlink_to("a/file")


def test_the_same_files_give_the_same_layer_whenever_they_were_written(tmp_path):
    _tree(tmp_path / "one", "a/file", "b")
    _tree(tmp_path / "two", "b", "a/file")
    os.utime(tmp_path / "two/b", (1, 1))
    layout = Layout(tmp_path / "layout")
    assert layout.layer(tmp_path / "one", compression=6) == layout.layer(tmp_path / "two", compression=6)


def test_a_layer_belongs_to_root_and_has_the_digests_it_claims(tmp_path):
    _tree(tmp_path / "root", "a/file")
    layout = Layout(tmp_path / "layout")
    layer = layout.layer(tmp_path / "root", compression=6)
    blob = layout.blob(layer.digest)
    assert (hashlib.sha256(blob.read_bytes()).hexdigest(), blob.stat().st_size) == (blob.name, layer.size)
    with tarfile.open(blob) as tar:
        entries = {entry.name: entry for entry in tar}
    assert entries.keys() == {"a", "a/file", "link"}
    assert {(e.uid, e.gid, e.mtime, e.uname) for e in entries.values()} == {(0, 0, 0, "")}


def test_an_image_names_its_layers_and_its_user(tmp_path):
    _tree(tmp_path / "root", "a/file")
    layout = Layout(tmp_path / "layout")
    layer = layout.layer(tmp_path / "root", compression=6)
    config = {"User": "65532:65532"}
    digest = layout.image("r/image:1", [layer], architecture="amd64", config=config, annotations={"a": "b"})
    archive(layout.folder, tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as tar:
        read = {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}
    (described,) = json.loads(read["index.json"])["manifests"]
    manifest = json.loads(read[f"blobs/sha256/{digest.removeprefix('sha256:')}"])
    settings = json.loads(read[f"blobs/sha256/{manifest['config']['digest'].removeprefix('sha256:')}"])
    assert (described["digest"], described["annotations"]["io.containerd.image.name"]) == (
        digest,
        "r/image:1",
    )
    assert [each["digest"] for each in manifest["layers"]] == [layer.digest]
    assert (settings["rootfs"]["diff_ids"], settings["config"]) == ([layer.diff_id], config)


def test_a_layer_of_the_same_lock_is_packed_once(tmp_path):
    filled = []

    def fill(root):
        filled.append(root)
        _tree(root, "a/file")

    stores = [
        LayerStore(folder=tmp_path / "store", layout=Layout(tmp_path / name), key="amd64") for name in "ab"
    ]
    assert stores[0].layer("lock", fill) == stores[1].layer("lock", fill)
    assert len(filled) == 1
    stores[1].layer("another lock", fill)
    stores[1].layer("", fill)
    stores[1].layer("", fill)
    assert len(filled) == 4


def test_the_bill_of_materials_names_every_package_once():
    package = debian.Package(name="libc6", version="2.36", sha256="0" * 64)
    made = sbom.spdx(
        "r/image:1",
        f"sha256:{'1' * 64}",
        debian=[package],
        python=[("PyYAML", "6.0")],
        created="2026-01-01T00:00:00Z",
    )
    named = {p["externalRefs"][0]["referenceLocator"]: p["SPDXID"] for p in made["packages"]}
    assert named.keys() == {"pkg:deb/debian/libc6@2.36?distro=bookworm", "pkg:pypi/pyyaml@6.0"}
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", identifier) for identifier in named.values())
    assert {each["relatedSpdxElement"] for each in made["relationships"]} == set(named.values())


def test_the_provenance_names_the_image_and_its_locks():
    made = sbom.provenance("r/image:1", "sha256:12", source="s", revision="r", locks={"operator.lock": "34"})
    assert made["subject"] == [{"name": "r/image:1", "digest": {"sha256": "12"}}]
    assert {"uri": "operator.lock", "digest": {"sha256": "34"}} in made["predicate"]["buildDefinition"][
        "resolvedDependencies"
    ]


def test_each_stack_that_is_tested_has_an_image_of_its_worker():
    stacks = {file.stem for file in (ROOT / "tests/e2e/stacks/locks").glob("*.in")}
    assert images().keys() == {"operator", *(f"worker-{stack}" for stack in stacks)}


def test_an_unknown_image_is_one_line(tmp_path, capsys):
    assert main(["operater", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: operater: the images are operator")
