"""The monitor's settings, and section [monitor] of the site's file, which has those of its flags."""

import enum
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from rightsizer_engine.errors import InputError
from rightsizer_engine.units import parse_duration_s
from rightsizer_engine.values import immutable
from rightsizer_launch.running.limits import Tuning
from rightsizer_slurm.cluster.config import absolute_path, check_key, one_of
from rightsizer_telemetry.client import PrometheusSettings

BACKENDS = ("auto", "commands", "pyslurm")

_DURATIONS = {"every": "30s", "cool_down": "1h", "warm_up": "10m", "window": "10m"}
_OTHERS = ("act", "annotate", "textfile", "metrics", "prometheus", "token_file", "backend")


class ActionLevel(enum.StrEnum):
    """The most that the monitor does on its own."""

    FLAG = "flag"
    MAIL = "mail"
    SHRINK = "shrink"
    REQUEUE = "requeue"

    def allows(self, other: "ActionLevel") -> bool:
        """Whether this level includes another."""
        order = list(ActionLevel)
        return order.index(other) <= order.index(self)


@immutable
class MonitorSettings:
    """The monitor's settings. `annotate` writes AdminComment, which needs the rights of a Slurm operator.

    `runs` is the folder to which jobs copy their records if their home is private.
    """

    level: ActionLevel = ActionLevel.FLAG
    every_s: float = 30.0
    annotate: bool = False
    runs: Path | None = None
    tuning: Tuning = field(default_factory=Tuning)


@immutable
class MonitorOptions:
    """`state` is the state file, `sweeps` the number of sweeps (None: no end).

    Metrics go to `textfile`, for the node exporter, and are served at `metrics`, (address, port).
    """

    settings: MonitorSettings
    state: Path
    backend: str = "auto"
    prometheus: PrometheusSettings | None = None
    textfile: Path | None = None
    metrics: tuple[str, int] | None = None
    sweeps: int | None = None


def options_of(values: Mapping[str, str], *, state: Path, runs: Path | None = None) -> MonitorOptions:
    """The options of a [monitor] section; InputError names the wrong line."""
    for key in values:
        check_key(key, values[key], (*_DURATIONS, *_OTHERS), section="[monitor] ")
    spans = {
        key: parse_duration_s(values.get(key, default), field=f"[monitor] {key}")
        for key, default in _DURATIONS.items()
    }
    tuning = Tuning(
        cool_down_s=spans["cool_down"], warm_up_s=spans["warm_up"], least_window_s=spans["window"]
    )
    settings = MonitorSettings(
        level=ActionLevel(one_of("[monitor] act", values.get("act", "flag"), tuple(ActionLevel))),
        every_s=spans["every"],
        annotate=one_of("[monitor] annotate", values.get("annotate", "no"), ("yes", "no")) == "yes",
        runs=runs,
        tuning=tuning,
    )
    url, token = values.get("prometheus", ""), _path("token_file", values)
    return MonitorOptions(
        settings=settings,
        state=state,
        backend=one_of("[monitor] backend", values.get("backend", "auto"), BACKENDS),
        prometheus=PrometheusSettings(url=url, token_file=token) if url else None,
        textfile=_path("textfile", values),
        metrics=_address(values["metrics"]) if "metrics" in values else None,
    )


def _path(key: str, values: Mapping[str, str]) -> Path | None:
    return absolute_path(f"[monitor] {key}", values[key]) if key in values else None


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65_536:
        raise InputError("[monitor] metrics", value=text, remedy="write ADDRESS:PORT, as 127.0.0.1:9817")
    return host.strip("[]"), int(port)
