"""The what-if page in Chromium: typed in, shared, used by keyboard alone."""

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

pytestmark = pytest.mark.page

QUESTION = "?model=gpt2&tokens=10B&deadline=3d&gpu=A100-SXM4-80GB"


def verdict(browser: Chrome) -> str:
    return browser.find_element(By.CSS_SELECTOR, "#answer .verdict").text


def until(browser: Chrome, holds) -> None:
    """Wait for what the page has only asked its server for."""
    WebDriverWait(browser, 60).until(lambda _: holds())


def picture_px(browser: Chrome) -> int:
    return browser.execute_script("return document.querySelector('#answer img').naturalWidth")


def test_the_first_page_shows_an_example_whole(browser, address):
    browser.get(address)
    assert "GPUs" not in browser.title
    assert "H100-SXM5-80GB" in verdict(browser)
    until(browser, lambda: picture_px(browser) > 100)
    parts = browser.find_elements(By.CSS_SELECTOR, "svg.bars rect")
    assert len(parts) > 8
    assert all(part.size["height"] > 10 for part in parts)


def test_typing_changes_the_answer_and_the_address(browser, address):
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


def test_a_mistake_is_said_and_mended(browser, address):
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


def test_the_browser_had_nothing_to_complain_of(browser, address):
    browser.get_log("browser")
    browser.get(address + QUESTION)
    until(browser, lambda: picture_px(browser) > 100)
    assert browser.get_log("browser") == []
