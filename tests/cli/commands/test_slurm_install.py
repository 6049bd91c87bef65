"""`rightsizer slurm install`: lists, writes or prints the packaged files."""

import pytest

from rightsizer_cli.main import execute


def install(*options):
    return execute(["slurm", "install", *map(str, options)])


def test_without_options_it_lists_and_writes_nothing(tmp_path, capsys):
    assert install("--root", tmp_path) == 0
    assert "nothing is written without --place" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_place_writes_and_prints_the_next_step(tmp_path, capsys):
    assert install("--place", "--etc", "/opt/slurm/etc", "--root", tmp_path) == 0
    said = capsys.readouterr().out
    assert (tmp_path / "opt/slurm/etc/job_submit.lua").exists()
    assert "/opt/slurm/etc/slurm.conf: JobSubmitPlugins=lua" in said


def test_the_filter_of_login_nodes_takes_the_plugin_s_place(tmp_path, capsys):
    assert install("--place", "--cli-filter", "--etc", "/etc/slurm", "--root", tmp_path) == 0
    there = {path.name for path in (tmp_path / "etc/slurm").iterdir()}
    assert there == {"cli_filter.lua", "rightsizer.lua", "rightsizer.conf"}
    assert "CliFilterPlugins=lua" in capsys.readouterr().out


def test_a_plugin_of_the_site_is_in_the_way(tmp_path, capsys):
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/job_submit.lua").write_text("return 0\n")
    assert install("--place", "--etc", "/etc/slurm", "--root", tmp_path) == 1
    assert "dofile" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options", [("--check", "--place"), ("--print", "x.lua"), ("--etc", "etc")], ids=["two", "name", "path"]
)
def test_wrong_options_are_one_line(options, capsys):
    assert install(*options) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_print_is_the_file_and_nothing_else(capsys):
    assert install("--print", "rightsizer.lua") == 0
    assert capsys.readouterr().out.startswith("-- rightsizer.lua")
