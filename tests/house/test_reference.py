"""The reference tables are those of the manifest: missing ones are downloaded, changed ones are refused."""

import functools
import http.server
import sys
import threading

import pytest
from tests.house.test_house import ROOT

sys.path.append(str(ROOT))  # bench is run from the repository, not installed
from bench.reference import MANIFEST, digest_of, ready, record, stated

TABLES = {"runs.csv": b"id,step_s\nA,1\n", "traces/jobs.csv": b"job\n1\n"}
HASHES = {name: digest_of(content) for name, content in TABLES.items()}


@pytest.fixture
def released(tmp_path):
    """The tables in a folder."""
    folder = tmp_path / "released"
    for name, content in TABLES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def url(released):
    """The address of that folder, served on this machine."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=released)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_complete_folder_is_used(released):
    assert ready(released, HASHES) == released


def test_a_missing_file_without_an_address_is_one_line_with_the_remedy(released):
    (released / "runs.csv").unlink()
    with pytest.raises(SystemExit, match=r"^error: .*runs.csv: missing; set RIGHTSIZER_REFERENCE to .*URL"):
        ready(released, HASHES)


def test_missing_files_are_downloaded_whole(tmp_path, url):
    folder = ready(tmp_path / "new", HASHES, url)
    assert {name: (folder / name).read_bytes() for name in TABLES} == TABLES
    assert len([path for path in folder.rglob("*") if path.is_file()]) == len(TABLES)


def test_a_changed_file_is_refused_and_left(released, url):
    (released / "runs.csv").write_text("mine")
    with pytest.raises(SystemExit, match=r"runs.csv: differs from reference.sha256; put .* --record"):
        ready(released, HASHES, url)
    assert (released / "runs.csv").read_text() == "mine"


def test_a_download_of_another_hash_is_refused_and_not_kept(tmp_path, url, released):
    (released / "runs.csv").write_text("another release's")
    with pytest.raises(SystemExit, match="differs from"):
        ready(tmp_path / "new", HASHES, url)
    assert not (tmp_path / "new/runs.csv").exists()


@pytest.mark.parametrize("wrong", ["none/", "http://127.0.0.1:9/", "no address"])
def test_a_release_that_is_not_there_is_one_line(tmp_path, url, wrong):
    address = url + wrong if wrong.endswith("e/") else wrong
    with pytest.raises(SystemExit, match="is RIGHTSIZER_REFERENCE_URL the address of a release"):
        ready(tmp_path / "new", HASHES, address)


def test_what_is_recorded_is_ready(released, tmp_path):
    record(released, tmp_path / "hashes")
    assert stated(tmp_path / "hashes") == HASHES


def test_the_manifest_names_what_the_benches_read():
    assert {"published_runs.csv", "published_runs_wave2.csv", "traces/philly_jobs.csv.gz"} <= set(stated())
    assert len(MANIFEST.read_text().splitlines()) == len(stated())
