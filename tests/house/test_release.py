"""The parts of a release; `make release-dry-run` builds one in CI."""

import fnmatch
import os
import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

sys.path.append(str(Path(__file__).resolve().parents[2]))  # deploy is run from the repository, not installed
from deploy.images import build as images
from deploy.images import debian, oci
from deploy.images.errors import BuildError
from deploy.release import build, chart, check, linux, notes, standalone

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm/rightsizer"
WORKFLOW = (ROOT / ".github/workflows/release.yml").read_text()


@pytest.mark.parametrize(
    ("python", "helm"),
    [
        ("1.2.3", "1.2.3"),
        ("1.2.3rc1", "1.2.3-rc.1"),
        ("1.2.0a2", "1.2.0-alpha.2"),
        ("0.2.dev5", "0.2.0-dev.5"),
        ("1.2.4.dev7", "1.2.4-dev.7"),
    ],
)
def test_a_version_is_written_as_helm_writes_it(python, helm):
    assert chart.semantic(python) == helm


@pytest.mark.parametrize("version", ["1", "1.2.3+local", "v1.2.3", "1.2.3.post1", ""])
def test_other_versions_are_refused(version):
    with pytest.raises(ValueError, match="a release is"):
        chart.semantic(version)


def test_the_packed_chart_is_the_chart_with_this_version(tmp_path):
    (tmp_path / "again").mkdir()
    packed, again = (chart.package(CHART, "1.2.3rc1", out) for out in (tmp_path, tmp_path / "again"))
    assert packed.read_bytes() == again.read_bytes()
    with tarfile.open(packed) as tar:
        held = {entry.name: tar.extractfile(entry).read() for entry in tar}
    assert held.keys() == {f"rightsizer/{p.relative_to(CHART)}" for p in CHART.rglob("*") if p.is_file()}
    about = yaml.safe_load(held["rightsizer/Chart.yaml"])
    assert (about["version"], about["appVersion"]) == ("1.2.3-rc.1", "1.2.3rc1")


def a_wheel(path, *names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
        archive.writestr("one-1.2.3.dist-info/METADATA", "Name: one\nVersion: 1.2.3\n")
    return path


def test_a_wheel_with_every_tracked_file_has_a_version_and_one_without_is_refused(tmp_path):
    packages, tracked = (
        [Path("top/one")],
        [Path("top/one/py.typed"), Path("top/one/data/x.lua"), Path("README")],
    )
    whole = a_wheel(tmp_path / "whole.whl", "one/py.typed", "one/data/x.lua")
    assert check.wheel(whole, packages, tracked) == "1.2.3"
    with pytest.raises(BuildError, match=r"lacks one/data/x\.lua"):
        check.wheel(a_wheel(tmp_path / "less.whl", "one/py.typed"), packages, tracked)


def test_a_source_distribution_is_the_checkout_of_its_tag(tmp_path):
    folder = tmp_path / "top/one-1.2.3"
    folder.mkdir(parents=True)
    for name in ("PKG-INFO", "README", "scratch"):
        (folder / name).write_text(name)
    made = tmp_path / "one-1.2.3.tar.gz"
    with made.open("wb") as stored:
        oci.write(stored, tmp_path / "top", compression=6)
    check.source(made, [Path("README"), Path("scratch")], clean=True)
    check.source(made, [Path("README")], clean=False)
    with pytest.raises(BuildError, match="does not track: scratch"):
        check.source(made, [Path("README")], clean=True)
    with pytest.raises(BuildError, match=r"one-1\.2\.3\.tar\.gz lacks LICENSE"):
        check.source(made, [Path("LICENSE"), Path("README")], clean=False)


@pytest.mark.parametrize("package", build._packages(), ids=lambda path: path.name)
def test_each_package_is_marked_as_typed(package):
    assert (ROOT / package / "py.typed").exists()


CHANGES = "## Unreleased\n\nnew\n\n## 1.2.3 (2026-01-02)\n\n- one\n\n## 1.2.2 (2026-01-01)\n\n- two\n"


def test_a_release_s_notes_are_its_part_of_the_changelog():
    assert notes.notes(CHANGES, "1.2.3") == "- one\n"


@pytest.mark.parametrize("version", ["1.2.4", "Unreleased", "1.2"])
def test_a_version_without_notes_is_refused(version):
    with pytest.raises(BuildError, match=re.escape(f"## {version} (YYYY-MM-DD)")):
        notes.notes(CHANGES, version)


@pytest.mark.parametrize("tag", ["v1.2.4", "1.2.3", "v1.2.3rc1"])
def test_a_tag_that_is_not_the_version_is_refused(tag):
    with pytest.raises(BuildError, match=r"tag the commit v1\.2\.3"):
        build._tag(tag, "1.2.3")


def test_the_packages_lock_is_that_of_the_environment():
    every = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements.lock").read_text(), flags=re.M))
    locked = dict(linux.locked())
    assert locked.items() <= every.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plain = {re.match(r"[\w.-]+", each)[0] for each in project["dependencies"]}
    assert plain <= locked.keys(), "run make lock"


def test_a_linux_package_sorts_a_development_version_before_its_release():
    made = linux.settings(Path("root"), "1.2.4.dev7", "amd64")
    assert made["version"] == "1.2.4~dev7"
    assert linux.settings(Path("root"), "1.2.3", "amd64")["version"] == "1.2.3"


def test_the_archive_s_packages_are_pinned_with_the_image():
    base = debian.locked(images.images()["operator"].base_lock.read_text())
    assert {package.name for package in base} >= standalone.PACKAGES


def test_no_installer_takes_the_archive_for_a_source_distribution():
    name = standalone.name_of("1.2.3", "amd64")
    assert name == "rightsizer_1.2.3_linux_x86_64"
    (pattern,) = re.findall(r"dist/release/(rightsizer-\S*gz)", WORKFLOW)
    assert not fnmatch.fnmatch(f"{name}.tar.gz", pattern)
    assert fnmatch.fnmatch("rightsizer-1.2.3.tar.gz", pattern)


def test_the_same_files_give_the_same_archive(tmp_path):
    made = []
    for time_s in (1, 2_000_000_000):
        root = tmp_path / str(time_s)
        (root / "top").mkdir(parents=True)
        (root / "top/file").write_text("text")
        (root / "top/link").symlink_to("file")
        os.utime(root / "top/file", (time_s, time_s))
        made.append(root.with_suffix(".tar.gz"))
        with made[-1].open("wb") as stored:
            oci.write(stored, root, compression=6, time_s=86400)
    assert made[0].read_bytes() == made[1].read_bytes()
    with tarfile.open(made[0]) as tar:
        assert [(e.name, e.mtime) for e in tar] == [(n, 86400) for n in ("top", "top/file", "top/link")]


def an_archive(folder, says):
    commands = folder / "top/rightsizer/bin"
    commands.mkdir(parents=True)
    (commands / "rightsizer").write_text(f"#!/bin/sh\necho rightsizer {says}\n")
    (commands / "rightsizer").chmod(0o755)
    with (folder / "made.tar.gz").open("wb") as stored:
        oci.write(stored, folder / "top", compression=6)
    return folder / "made.tar.gz"


def test_an_archive_whose_command_prints_another_version_is_refused(tmp_path):
    made = an_archive(tmp_path, "1.2.3")
    check.standalone(made, "1.2.3", "amd64")
    with pytest.raises(BuildError, match=r"--version: rightsizer 1\.2\.3"):
        check.standalone(made, "1.2.4", "amd64")


def test_an_archive_with_bytecode_of_a_time_is_refused(tmp_path):
    (tmp_path / "top/rightsizer").mkdir(parents=True)
    (tmp_path / "top/rightsizer/one.pyc").write_bytes(b"\0\0\r\n" + bytes(12))
    with pytest.raises(BuildError, match=r"out of date once unpacked: one\.pyc"):
        check.standalone(an_archive(tmp_path, "1.2.3"), "1.2.3", "amd64")


def test_the_workflow_uploads_only_what_the_dry_run_built():
    steps = yaml.safe_load(WORKFLOW)["jobs"]["release"]["steps"]
    runs = [step.get("run", step.get("uses", "")) for step in steps]
    built = next(i for i, run in enumerate(runs) if run.startswith("make release-dry-run"))
    uploads = [
        i for i, run in enumerate(runs) if re.search(r"skopeo copy|helm. push|gh release|publish", run)
    ]
    assert uploads
    assert min(uploads) > built


def test_the_workflow_has_debian_s_packages_before_it_builds():
    steps = yaml.safe_load(WORKFLOW)["jobs"]["release"]["steps"]
    (sources,) = (i for i, step in enumerate(steps) if "debian.sources" in step.get("run", ""))
    assert steps[sources + 1]["run"].startswith("make release-dry-run")


def test_the_workflow_gives_rights_to_its_one_job_only():
    workflow = yaml.safe_load(WORKFLOW)
    assert workflow["permissions"] == {}
    assert workflow["jobs"]["release"]["permissions"]["id-token"] == "write"
