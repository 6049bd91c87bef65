"""The what-if page in Chromium: typed in, shared, used by keyboard alone."""

from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

pytestmark = pytest.mark.page

QUESTION = "?model=gpt2&tokens=10B&deadline=3d&gpu=A100-SXM4-80GB"

AXE = Path(__file__).parents[3] / "build/page/node_modules/axe-core/axe.min.js"
SLOW = "?model=deepseek-ai/DeepSeek-V3&tokens=14.8T&deadline=90d&gpu=H800,A100,H100,B200,H200"


def verdict(browser: Chrome) -> str:
    """In one call: an answer may replace the element between finding and reading it."""
    return browser.execute_script(
        "return document.querySelector('#answer .verdict')?.innerText ?? ''"
    ).strip()


def until(browser: Chrome, holds) -> None:
    """Wait for a response of the page's server."""
    WebDriverWait(browser, 60).until(lambda _: holds())


def picture_px(browser: Chrome) -> int:
    return browser.execute_script("return document.querySelector('#answer img').naturalWidth")


def test_the_first_page_shows_an_example_whole(browser, address):
    browser.get(address)
    until(browser, lambda: "H100-SXM5-80GB" in verdict(browser))
    assert browser.title.endswith(" - rightsizer")
    assert "H100-SXM5-80GB" in verdict(browser)
    until(browser, lambda: picture_px(browser) > 100)
    parts = browser.find_elements(By.CSS_SELECTOR, "svg.bars rect")
    assert len(parts) > 8
    assert all(part.size["height"] > 10 for part in parts)


def test_typing_changes_the_plan_and_the_address(browser, address):
    browser.get(address + QUESTION)
    before = verdict(browser)
    field = browser.find_element(By.ID, "deadline")
    field.clear()
    field.send_keys("12h")
    until(browser, lambda: "deadline=12h" in browser.current_url)
    assert verdict(browser) != before
    shared = verdict(browser)
    browser.get(browser.current_url)
    assert verdict(browser) == shared


def test_a_mistake_is_reported_until_it_is_corrected(browser, address):
    browser.get(address + QUESTION)
    right = verdict(browser)
    field = browser.find_element(By.ID, "tokens")
    field.send_keys(" parsecs")
    until(browser, lambda: verdict(browser).startswith("--tokens: "))
    for _ in " parsecs":
        field.send_keys(Keys.BACKSPACE)
    until(browser, lambda: verdict(browser) == right)


def test_a_lever_is_a_link_to_its_plan(browser, address):
    browser.get(address + QUESTION)
    lever = browser.find_element(By.CSS_SELECTOR, "#answer li a")
    gpus = lever.text.split(": ")[1].split(" (")[0].split(",")[0]
    lever.click()
    until(browser, lambda: verdict(browser).startswith(gpus.partition(" ")[0]))


def test_every_field_with_known_names_suggests_them(browser, address):
    browser.get(address + QUESTION)
    lists = (
        "return [...document.querySelectorAll('input[list]')].map(e => [e.id, e.list?.options.length > 3])"
    )
    assert dict(browser.execute_script(lists)) == dict.fromkeys(
        ("model", "gpu", "node_shape", "framework"), True
    )


def test_everything_is_reached_by_keyboard(browser, address):
    browser.get(address + QUESTION)
    focused, keys = [], ActionChains(browser)
    for _ in range(14):
        keys.send_keys(Keys.TAB).perform()
        element = browser.switch_to.active_element
        focused.append(element.get_attribute("id") or element.tag_name)
    assert focused[:7] == ["model", "method", "tokens", "deadline", "gpu", "max_gpus", "budget"]
    assert focused[7:12] == ["summary"] * 4 + ["button"]
    assert "a" in focused[12:]
    named = browser.execute_script(
        "return [...document.querySelectorAll('input, select')].every(e => e.labels.length === 1)"
    )
    assert named


@pytest.mark.parametrize("query", [QUESTION, "?model=none", QUESTION + "&max_gpus=1&deadline=1h"])
def test_axe_finds_no_barrier(browser, address, query):
    browser.get(address + query)
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    browser.refresh()
    browser.execute_script(AXE.read_text())
    found = browser.execute_async_script("axe.run(document).then(arguments[0])")
    assert len(found["passes"]) > 20
    doubtful = [each for each in found["incomplete"] if each["id"].startswith("duplicate-id")]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found["violations"] + doubtful] == []


@pytest.mark.parametrize("wide_px", [375, 640])  # a phone; a window of 1280 at 200 %
def test_a_narrow_window_scrolls_down_only(browser, address, wide_px):
    size = {"width": wide_px, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(address + QUESTION)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= wide_px
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_page_is_dark_for_a_dark_system(browser, address):
    def background() -> str:
        return browser.execute_script("return getComputedStyle(document.body).backgroundColor")

    browser.get(address + QUESTION)
    light = background()
    prefers = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", prefers)
    dark = background()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert (light, dark) == ("rgb(246, 247, 249)", "rgb(18, 22, 29)")


def test_going_back_shows_the_previous_request(browser, address):
    browser.get(address + QUESTION)
    before = verdict(browser)
    field = browser.find_element(By.ID, "max_gpus")
    field.send_keys("64", Keys.ENTER)
    until(browser, lambda: "max_gpus=64" in browser.current_url)
    browser.back()
    until(browser, lambda: browser.find_element(By.ID, "max_gpus").get_attribute("value") == "")
    until(browser, lambda: verdict(browser) == before)


def test_a_slow_plan_shows_that_it_is_being_computed(browser, address):
    browser.get(address + SLOW)
    until(browser, lambda: "Computing the plan" in browser.find_element(By.ID, "wait").text)
    said = browser.find_element(By.ID, "said")
    assert said.get_attribute("textContent") == "Computing the plan"
    browser.get(address + QUESTION)  # which does not wait for it
    assert "A100" in verdict(browser)


def test_the_browser_had_nothing_to_complain_of(browser, address):
    browser.get_log("browser")
    browser.get(address + QUESTION)
    until(browser, lambda: picture_px(browser) > 100)
    assert browser.get_log("browser") == []
