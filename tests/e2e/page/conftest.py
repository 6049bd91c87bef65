"""The page's server as a user starts it, and a browser."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

COMMAND = "import sys; from rightsizer_cli.start import main; sys.argv[0] = 'rightsizer'; sys.exit(main())"


@pytest.fixture(scope="session")
def address(tmp_path_factory) -> Iterator[str]:
    """Where `rightsizer serve` says that it listens. It ends with exit code 0."""
    folder: Path = tmp_path_factory.mktemp("page")
    argv = [sys.executable, "-c", COMMAND, "serve", "--port", "0", "--no-browser"]
    with subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.match(r"(http://127\.0\.0\.1:\d+/) ", server.stdout.readline())
        assert found
        yield found[1]
        server.terminate()
        assert server.wait(20) == 0


@pytest.fixture(scope="session")
def browser() -> Iterator[webdriver.Chrome]:
    """Headless Chromium: no sandbox, since tests may run as root."""
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,2200"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path="/usr/bin/chromedriver")
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()
