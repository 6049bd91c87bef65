"""The documentation's site from the disk in Chromium: found by its search, loaded from nowhere else."""

import subprocess
import sys
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

pytestmark = pytest.mark.page
ROOT = Path(__file__).parents[3]
LOADED = """return [...document.querySelectorAll('script[src], link[rel=stylesheet], link[rel=icon], img')]
  .map((part) => part.src || part.href)"""
FOUND = "return document.activeElement.shadowRoot?.textContent ?? ''"
SCHEME = "return document.body.getAttribute('data-md-color-scheme')"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> str:
    """The address of the site's folder."""
    out = tmp_path_factory.mktemp("site") / "site"
    subprocess.run([sys.executable, ROOT / "scripts/site.py", out], check=True)
    return out.as_uri()


def test_the_search_works_from_the_disk_without_another_server(browser, site):
    browser.get(f"{site}/tutorials/laptop.html")
    wait = WebDriverWait(browser, 60)
    browser.find_element(By.CSS_SELECTOR, ".md-search__button").click()
    browser.switch_to.active_element.send_keys("reserve")
    wait.until(lambda page: "Two-stage sizing" in page.execute_script(FOUND))
    loaded = browser.execute_script(LOADED)
    assert any(each.endswith("iframe-worker.js") for each in loaded)
    assert not [each for each in loaded if not each.startswith("file:")]


def test_the_colours_follow_the_system_until_the_reader_chooses(browser, site):
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    browser.get(f"{site}/index.html")
    assert browser.execute_script(SCHEME) == "slate"
    browser.find_element(By.CSS_SELECTOR, "label[title='Switch to light mode']").click()
    assert browser.execute_script(SCHEME) == "default"
