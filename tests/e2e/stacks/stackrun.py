"""A run of a stack's script, as the person at the terminal starts it."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from rightsizer_launch.worker.progress import ProgressReader, Record

COMMAND = "import sys; from rightsizer_cli.start import main; sys.argv[0] = 'rightsizer'; sys.exit(main())"
PATIENCE_S = 240.0


class Run:
    """`rightsizer run plan.yaml --dir D` in a copy of a stack's example, with the records that it writes."""

    def __init__(self, environment: tuple[str, dict[str, str]], folder: Path, *options: str) -> None:
        self.directory = folder / "D"
        python, variables = environment
        argv = [python, "-c", COMMAND, "run", "plan.yaml", "--dir", "D", *options]
        self.log = (folder / "log").open("a")
        self.process = subprocess.Popen(argv, cwd=folder, env=variables, stdout=self.log, stderr=self.log)

    def records(self, event: str) -> list[Record]:
        path = self.directory / "progress.jsonl"
        return [record for record in ProgressReader(path).read() if record.event == event]

    def wait(self, what: str, until: Callable[[], bool]) -> None:
        """Wait for something; fail if the run ends or stalls before it."""
        give_up_s = time.monotonic() + PATIENCE_S
        while not until():
            ended = self.process.poll() is not None or time.monotonic() > give_up_s
            assert not ended, f"no {what}: {Path(self.log.name).read_text()[-3000:]}"
            time.sleep(0.1)

    def wait_until_no_record_is_written_for(self, quiet_s: float) -> None:
        """Wait until the workers have been silent for a while."""
        size, since_s = -1, time.monotonic()

        def is_quiet() -> bool:
            nonlocal size, since_s
            found = (self.directory / "progress.jsonl").stat().st_size
            if found != size:
                size, since_s = found, time.monotonic()
            return time.monotonic() - since_s >= quiet_s

        self.wait("quiet workers", is_quiet)

    def end(self) -> int:
        """The exit code, once it has ended by itself."""
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()
