"""The sample day in a real Prometheus: imported by promtool, and our rules evaluated over it."""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from tests.e2e.prometheus.sample_day import MINUTES, samples
from tests.e2e.prometheus.server import Server

from rightsizer_launch.worker.rendezvous import free_port
from rightsizer_telemetry.alerts import ALERTS
from rightsizer_telemetry.rules import INTERVAL_S, RecordingRule, groups

MORE = ("--storage.tsdb.retention.time=1000d", "--query.lookback-delta=90s")
"""An import has no staleness markers, so that a series that ends would be answered for five minutes more."""
_RECORDED = re.compile(r"rightsizer:[\w:]+")
_TIMES = frozenset({"checkpoint_timestamp_seconds", "sweep_timestamp_seconds"})


@contextmanager
def served(end_s: float) -> Iterator[Server]:
    """A Prometheus whose data are the day that ends then, with all that our rules record and alert."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "prometheus.yml").write_text("scrape_configs: []\n")
        lines, begin_s = folder / "day.txt", end_s - 60 * MINUTES
        with lines.open("w") as file:
            file.writelines(_lines(begin_s))
        _promtool("openmetrics", str(lines), str(folder / "data"))
        server = Server(folder=folder, port=free_port(), more=MORE)
        try:
            server.start()
            for number, rules in enumerate(_levels(_rules())):
                path = folder / f"rules-{number}.yaml"
                document = [rule.document() for rule in rules]
                path.write_text(yaml.safe_dump({"groups": [{"name": "day", "rules": document}]}))
                times = (f"--start={begin_s:.0f}", f"--end={end_s:.0f}", f"--eval-interval={INTERVAL_S}s")
                _promtool(
                    "rules", *times, f"--url={server.url}", f"--output-dir={folder / 'data'}", str(path)
                )
                server.stop()  # a start reads the new blocks at once
                server.start()
            yield server
        finally:
            server.stop()


def _lines(begin_s: float) -> Iterator[str]:
    """OpenMetrics. Times in the day become Unix times."""
    for minute in range(MINUTES + 1):
        for name, labels, value in samples(minute):
            at_s = begin_s + value if any(name.endswith(end) for end in _TIMES) else value
            named = ",".join(f'{key}="{text}"' for key, text in labels.items())
            yield f"{name}{{{named}}} {at_s!r} {begin_s + 60 * minute:.0f}\n"
    yield "# EOF\n"


def _rules() -> Sequence[RecordingRule]:
    """Our rules. promtool evaluates no alerts, so they are recorded as Prometheus would: ALERTS{...} 1."""
    recording = [rule for group in groups() for rule in group.rules]
    firing = [
        RecordingRule(
            record="ALERTS",
            expr=f"({alert.expr}) * 0 + 1",
            labels={"alertname": alert.name, "alertstate": "firing", "severity": alert.severity},
        )
        for alert in ALERTS
        if "absent" not in alert.expr
    ]
    return [*recording, *firing]


def _levels(rules: Sequence[RecordingRule]) -> Iterator[Sequence[RecordingRule]]:
    """The rules in rounds: each reads only what earlier rounds recorded."""
    waiting = list(rules)
    while waiting:
        missing = {rule.record for rule in waiting}
        ready = [rule for rule in waiting if not missing & set(_RECORDED.findall(rule.expr))]
        assert ready, missing
        yield ready
        waiting = [rule for rule in waiting if rule not in ready]


def _promtool(kind: str, *arguments: str) -> None:
    command = ["promtool", "tsdb", "create-blocks-from", kind, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
