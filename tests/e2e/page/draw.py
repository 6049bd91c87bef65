"""Take the picture of the what-if page for the documentation: `python -m tests.e2e.page.draw FILE.png`."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

COMMAND = "import sys; from rightsizer_cli.start import main; sys.argv[0] = 'rightsizer'; sys.exit(main())"
QUESTION = "?model=meta-llama/Llama-3.1-8B&tokens=100B&deadline=14d&gpu=H100"
_DRAWN = "const i = document.querySelector('#answer img'); return i && i.naturalWidth > 100"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The server as a user starts it; the address that it prints. It ends with exit code 0."""
    argv = [sys.executable, "-c", COMMAND, "serve", "--port", "0", "--no-browser"]
    with subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.match(r"(http://127\.0\.0\.1:\d+/) ", server.stdout.readline())
        assert found
        yield found[1]
        server.terminate()
        assert server.wait(20) == 0


def main(file: str) -> None:
    """Write what Chromium shows."""
    options = webdriver.ChromeOptions()
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--window-size=1300,1500",
    ):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path="/usr/bin/chromedriver")
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder)) as address,
        webdriver.Chrome(options=options, service=service) as browser,
    ):
        browser.get(address + QUESTION)
        WebDriverWait(browser, 60).until(lambda _: browser.execute_script(_DRAWN))
        browser.save_screenshot(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
