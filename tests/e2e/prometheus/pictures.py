"""Draw the dashboards and the usage page of the sample day for the documentation.

python -m tests.e2e.prometheus.pictures FOLDER
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure
from selenium import webdriver
from tests.e2e.prometheus.backfill import served
from tests.e2e.prometheus.draw import Moment, draw
from tests.e2e.prometheus.panels import CHOICES, FOLDER
from tests.e2e.prometheus.server import Server

AHEAD_S = 1800.0
"""The day ends so much later than now: the usage page asks for the server's now, after the import."""
SPAN_S, STEP_S = 12 * 3600.0, 180.0
VIEWS = {
    "fleet": {},
    "namespace": {"cluster": "east", "namespace": "vision"},
    "plan": {"namespace": "nlp", "plan": "llama-8b"},
    "waste": {},
    "slurm": {"cluster": "hpc"},
    "operator": {"cluster": "east"},
}
"""The variables with which each page is drawn."""
SIZES = {"report": (1200, 1000), "report-phone": (390, 844)}


def the_end() -> float:
    """The end of the day, a whole minute."""
    return (time.time() + AHEAD_S) // 60 * 60


def pages(server: Server, end_s: float) -> Iterator[tuple[str, Figure]]:
    """The name and the picture of every dashboard."""
    with server.client() as client:
        for name, choices in VIEWS.items():
            board = json.loads((FOLDER / f"rightsizer-{name}.json").read_text())
            chosen = {**CHOICES, **choices}
            moment = Moment(client=client, end_s=end_s, span_s=SPAN_S, step_s=STEP_S, choices=chosen)
            yield name, draw(board, moment)


def report(server: Server, folder: Path) -> None:
    """The usage page as Chromium shows it on a desktop and on a phone."""
    with tempfile.TemporaryDirectory() as name:
        page = Path(name) / "report.html"
        command = Path(sys.executable).with_name("rightsizer")
        subprocess.run([command, "report", "--prometheus", server.url, "--html", page], check=True)
        for picture, (width, height) in SIZES.items():
            _screenshot(page.as_uri(), folder / f"{picture}.png", width, height)


def _screenshot(address: str, file: Path, width: int, height: int) -> None:
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    device = {"width": width, "height": height, "pixelRatio": 1.0}
    options.add_experimental_option("mobileEmulation", {"deviceMetrics": device})
    service = webdriver.ChromeService(executable_path="/usr/bin/chromedriver")
    with webdriver.Chrome(options=options, service=service) as browser:
        browser.get(address)
        browser.save_screenshot(str(file))


def main(folder: Path) -> None:
    """Write the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with served(end_s := the_end()) as server:
        report(server, folder)
        for name, figure in pages(server, end_s):
            figure.savefig(folder / f"dashboard-{name}.png", dpi=72)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
