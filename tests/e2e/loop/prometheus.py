"""A real Prometheus in a network of the tests, with the shipped rules; it can be killed and started again."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
INTERVAL_S = 5
"""Of scrapes and of rules: the shipped 30 s would make a test of minutes of waiting."""


@dataclass(slots=True, kw_only=True)
class Prometheus:
    """One server. `enter` is the command that brings a program to where it is to listen."""

    folder: Path
    address: str
    enter: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = field(default=None)

    def configure(self, scrapes: Sequence[dict[str, Any]]) -> None:
        """Write the scrape jobs, and the shipped rules with a shorter interval."""
        names = ("recording-rules.yaml", "alerts.yaml")
        for name in names:
            rules = yaml.safe_load((ROOT / "helm/rightsizer/monitoring" / name).read_text())
            for group in rules["groups"]:
                group["interval"] = f"{INTERVAL_S}s"
            (self.folder / name).write_text(yaml.safe_dump(rules))
        document = {
            "global": {"scrape_interval": f"{INTERVAL_S}s", "evaluation_interval": f"{INTERVAL_S}s"},
            "rule_files": list(names),
            "scrape_configs": list(scrapes),
        }
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(document))

    def start(self) -> None:
        """Start it, or start it again with its data; it responds some seconds later."""
        argv = [
            "prometheus",
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address={self.address}",
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([*self.enter, *argv], stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill it, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)
            self.process = None


def end(process: subprocess.Popen[Any]) -> None:
    """Ask it to end, and wait until it has."""
    process.terminate()
    process.communicate(timeout=60)


def until_there(path: Path, process: subprocess.Popen[Any]) -> str:
    """Wait for the line that a program writes once it listens."""
    while not (path.exists() and path.read_text()):
        assert process.poll() is None, f"{process.args} ended"
        time.sleep(0.05)
    return path.read_text()
