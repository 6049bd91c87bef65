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
RESULT = ".md-search-result__item h1"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> str:
    """The address of the site's folder."""
    out = tmp_path_factory.mktemp("site")
    argv = [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--site-dir", out]
    subprocess.run(argv, check=True, cwd=ROOT, env={"NO_MKDOCS_2_WARNING": "1"})
    return out.as_uri()


def test_the_search_works_from_the_disk_and_asks_nobody_else(browser, site):
    browser.get(f"{site}/tutorials/laptop.html")
    browser.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys("reserve")
    WebDriverWait(browser, 60).until(lambda page: page.find_elements(By.CSS_SELECTOR, RESULT))
    found = [each.get_attribute("textContent") for each in browser.find_elements(By.CSS_SELECTOR, RESULT)]
    assert "Concepts" in found
    loaded = browser.execute_script(LOADED)
    assert any(each.endswith("iframe-worker.js") for each in loaded)
    assert not [each for each in loaded if not each.startswith("file:")]
