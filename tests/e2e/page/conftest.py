"""The page's server as a user starts it, and a browser."""

from collections.abc import Iterator

import pytest
from selenium import webdriver
from tests.e2e.page.draw import served


@pytest.fixture(scope="session")
def address(tmp_path_factory) -> Iterator[str]:
    """The address that `rightsizer serve` prints."""
    with served(tmp_path_factory.mktemp("page")) as found:
        yield found


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
