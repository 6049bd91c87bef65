"""Take the picture of the page for the documentation: `python tests/e2e/page/draw.py ADDRESS FILE.png`."""

import sys

from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

_DRAWN = "const i = document.querySelector('#answer img'); return i && i.naturalWidth > 100"


def main(address: str, file: str) -> None:
    """Write what Chromium shows at the address."""
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,1500"):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path="/usr/bin/chromedriver")
    with webdriver.Chrome(options=options, service=service) as browser:
        browser.get(address)
        WebDriverWait(browser, 60).until(lambda _: browser.execute_script(_DRAWN))
        browser.save_screenshot(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
