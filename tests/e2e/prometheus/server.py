"""A Prometheus on loopback."""

import dataclasses
import shutil
import subprocess
import time
from pathlib import Path

from rightsizer_telemetry.client import FailedQuery, Prometheus, PrometheusSettings


@dataclasses.dataclass(slots=True, kw_only=True)
class Server:
    """A Prometheus on loopback that can be stopped and started again with its data."""

    folder: Path
    port: int
    more: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    shutil.which("prometheus") or "prometheus",
                    f"--config.file={self.folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    *self.more,
                ],
                stdout=log,
                stderr=log,
            )
        end_s = time.monotonic() + 120
        with self.client() as client:
            while isinstance(answer := client.instant("vector(1)"), FailedQuery):
                if self.process.poll() is not None or time.monotonic() > end_s:
                    raise RuntimeError(f"{answer.reason}\n{(self.folder / 'log').read_text()[-3000:]}")
                time.sleep(0.2)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def client(self, **changes: object) -> Prometheus:
        access = PrometheusSettings(url=self.url, timeout_s=60.0)
        return Prometheus(dataclasses.replace(access, **changes))  # type: ignore[arg-type]
