from pathlib import Path

import pytest

from rightsizer_engine.errors import InputError
from rightsizer_slurm.cluster.config import SiteConfig, beside, parse, read
from rightsizer_slurm.monitor.settings import ActionLevel, options_of


def test_a_site_is_read() -> None:
    text = "mode = warn  # for a start\nsocket=/run/x.sock\nusers = yes\n\n[partition h100]\nmode = enforce\n"
    parsed = parse(text)
    assert (parsed.mode, parsed.socket, parsed.users) == ("warn", Path("/run/x.sock"), True)
    assert (parsed.mode_of("h100"), parsed.mode_of("a100")) == ("enforce", "warn")


def test_an_empty_file_is_the_defaults() -> None:
    assert parse("# nothing yet\n") == SiteConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mdoe = off", "did you mean mode?"),
        ("mode = on", "must be one of off, warn, size, enforce"),
        ("timeout_s = 60", "must be seconds from 0.01 to 5"),
        ("timeout_s = soon", "must be seconds"),
        ("socket = plan.sock", "must be an absolute path"),
        ("users = maybe", "must be one of yes, no"),
        ("on_fault = cancel", "must be one of as-written, hold, refuse"),
        ("[queue h100]\nmode = off", "write [partition NAME]"),
        ("[partition h100]\ncolour = red", "a partition has one setting: mode"),
        ("mode = off\nmode = warn", "already exists"),
        ("[gpus]\na100 = A100-XYZ", "write none to exclude"),
        ("just text", "contains parsing errors"),
        ("x = 1\n" * 20000, "has more than"),
    ],
    ids=lambda text: text[:20],
)
def test_a_wrong_line_is_one_error(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        parse(text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rightsizer.conf"
    path.write_text("mode = off\n")
    path.chmod(0o644)
    assert read(path).mode == "off"
    path.chmod(0o666)
    with pytest.raises(InputError, match="only root may write it"):
        read(path)
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "other.conf")


def test_a_site_s_gres_types_are_configurable() -> None:
    parsed = parse("[gpus]\nA100 = a100-pcie-40gb\n1g.10gb = none\nuntyped = h100\n")
    assert parsed.gpus == {"a100": "A100-PCIe-40GB", "1g.10gb": "none", "untyped": "H100-SXM5-80GB"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acts = mail", "did you mean act?"),
        ("act = cancel", "must be one of flag, mail, shrink, requeue"),
        ("metrics = 9817", "write ADDRESS:PORT"),
        ("every = soon", "[monitor] every"),
        ("textfile = x.prom", "must be an absolute path"),
        ("annotate = true", "must be one of yes, no"),
    ],
    ids=lambda text: text[:12],
)
def test_a_wrong_line_of_the_monitors_is_one_error(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        options_of(parse(f"[monitor]\n{text}\n").monitor, state=Path("/s"))
    assert message in str(raised.value)


def test_the_monitor_is_set_by_its_section() -> None:
    text = "[monitor]\nact = shrink\nevery = 5s\nmetrics = 127.0.0.1:9817\nannotate = yes\n"
    parsed = options_of(parse(text).monitor, state=Path("/s"))
    assert (parsed.settings.level, parsed.settings.every_s, parsed.settings.annotate) == (
        ActionLevel.SHRINK,
        5.0,
        True,
    )
    assert (parsed.metrics, parsed.state) == (("127.0.0.1", 9817), Path("/s"))


def test_a_configless_login_node_has_its_own_copy_of_the_site_s_file(tmp_path: Path) -> None:
    (tmp_path / "rightsizer.conf").write_text("mode = warn\n")
    found = beside("/run/slurm/conf/slurm.conf", configless=tmp_path)
    assert found.mode == "warn"
    assert beside(str(tmp_path / "slurm.conf"), configless=tmp_path / "none").mode == "warn"
    assert beside("/nowhere/slurm.conf", configless=tmp_path / "none") == SiteConfig()
