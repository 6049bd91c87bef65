"""Stand-ins for the surroundings of a Prometheus beside Slurm: around_slurm.py TEXTFILE.

    /jobstats   jobstats' GPU exporter: invented signals for the GPUs of each job that runs, as squeue tells
    /textfile   the node exporter's textfile collector with what the real monitor wrote

The first line on stdout is the port on loopback.
"""

import http.server
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MODEL = "NVIDIA H100 80GB HBM3"


def jobs() -> Iterator[tuple[str, int]]:
    """Jobs that run, and how many GPUs each holds."""
    told = subprocess.run(
        ["squeue", "--noheader", "--states=RUNNING", "--format=%A|%b|%D"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for line in told.split():
        job, gres, nodes = line.split("|")
        yield job, int(gres.rpartition(":")[2]) * int(nodes)


def jobstats() -> str:
    lines = []
    for job, gpus in jobs():
        for index in range(gpus):
            labels = {"minor_number": str(index), "uuid": f"GPU-{job}-{index}", "name": MODEL}
            labels |= {"jobid": job, "userid": "1000"}
            values = {
                "nvidia_gpu_duty_cycle": 90,
                "nvidia_gpu_memory_used_bytes": 60e9,
                "nvidia_gpu_memory_total_bytes": 80e9,
                "nvidia_gpu_power_usage_milliwatts": 500e3,
            }
            words = ",".join(f"{key}={json.dumps(text)}" for key, text in labels.items())
            lines += [f"{name}{{{words}}} {value}\n" for name, value in values.items()]
    return "".join(lines)


def main(textfile: str) -> None:
    pages = {"/jobstats": jobstats, "/textfile": lambda: Path(textfile).read_text()}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages[self.path]().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
