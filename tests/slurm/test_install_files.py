"""Which packaged files a Slurm site gets, and which of its own are kept."""

from pathlib import Path

import pytest

from rightsizer_engine.errors import InputError
from rightsizer_slurm.cluster import config
from rightsizer_slurm.install_files import NAMES, Change, place, site_files, text

ETC, UNITS, COMMAND = Path("/etc/slurm"), Path("/etc/systemd/system"), Path("/opt/rightsizer/bin/rightsizer")


def files(root, **changed):
    return site_files(**({"etc": ETC, "units": UNITS, "command": COMMAND, "root": root} | changed))


def changes(root):
    return {file.path.name: file.change for file in files(root)}


def placed(root, **changed):
    for file in files(root, **changed):
        place(file)


def test_a_new_site_gets_every_file_and_a_second_time_none(tmp_path):
    assert set(changes(tmp_path).values()) == {Change.NEW}
    placed(tmp_path)
    assert set(changes(tmp_path).values()) == {Change.SAME}
    written = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert {str(path) for path in written} == {
        "etc/slurm/rightsizer.conf",
        "etc/slurm/rightsizer.lua",
        "etc/slurm/job_submit.lua",
        "etc/systemd/system/rightsizer-slurm.service",
    }
    assert {(tmp_path / path).stat().st_mode & 0o777 for path in written} == {0o644}


def test_the_shared_code_is_written_before_the_plugin_that_loads_it(tmp_path):
    names = [file.path.name for file in files(tmp_path)]
    assert names.index("rightsizer.lua") < names.index("job_submit.lua")


def test_an_upgrade_replaces_ours_and_keeps_the_settings(tmp_path):
    placed(tmp_path)
    conf = tmp_path / "etc/slurm/rightsizer.conf"
    conf.write_text("mode = enforce\n")
    plugin = tmp_path / "etc/slurm/job_submit.lua"
    plugin.write_text(text("job_submit.lua") + "-- an earlier version\n")
    assert changes(tmp_path)["job_submit.lua"] is Change.REPLACE
    assert changes(tmp_path)["rightsizer.conf"] is Change.KEEP
    placed(tmp_path)
    assert conf.read_text() == "mode = enforce\n"
    assert plugin.read_text() == text("job_submit.lua")


def test_a_plugin_of_the_site_is_kept(tmp_path):
    plugin = tmp_path / "etc/slurm/job_submit.lua"
    plugin.parent.mkdir(parents=True)
    plugin.write_text("function slurm_job_submit() return 0 end\n")
    placed(tmp_path)
    assert plugin.read_text().startswith("function slurm_job_submit() return 0")


def test_the_unit_starts_this_installation_with_this_site_s_settings(tmp_path):
    placed(tmp_path, etc=Path("/opt/slurm/etc"), command=Path("/srv/venv/bin/rightsizer"))
    unit = (tmp_path / "etc/systemd/system/rightsizer-slurm.service").read_text()
    expected = "/srv/venv/bin/rightsizer slurm daemon --monitor --config /opt/slurm/etc/rightsizer.conf"
    assert f"ExecStart={expected}\n" in unit
    assert "/opt/rightsizer" not in unit


@pytest.mark.parametrize(
    ("command", "begin"),
    [
        ("/opt/right sizer/rightsizer", '"{}/opt/right sizer/rightsizer" slurm daemon '),
        ("/opt/100%/rightsizer", "{}/opt/100%%/rightsizer slurm daemon "),
        ('/opt/"a\\b/rightsizer', '"{}/opt/\\"a\\\\b/rightsizer" slurm daemon '),
    ],
    ids=["blank", "percent", "quote"],
)
def test_the_unit_quotes_a_path_as_systemd_reads_it(tmp_path, command, begin):
    placed(tmp_path, command=Path(command))
    lines = (tmp_path / "etc/systemd/system/rightsizer-slurm.service").read_text().splitlines()
    (start,) = (line for line in lines if line.startswith("ExecStart="))
    (stop,) = (line for line in lines if line.startswith("ExecStopPost="))
    assert start.startswith(f"ExecStart={begin.format('')}")
    assert stop.startswith(f"ExecStopPost={begin.format('-')}")


def test_the_packaged_settings_change_no_job():
    assert config.parse(text("rightsizer.conf")).mode == "warn"


@pytest.mark.parametrize("name", NAMES)
def test_each_file_can_be_printed(name):
    assert text(name).endswith("\n")


@pytest.mark.parametrize("name", ["slurm.conf", "../__init__.py", ""])
def test_another_name_is_refused_with_those_that_exist(name):
    with pytest.raises(InputError, match=r"job_submit\.lua"):
        text(name)
