"""The page's result equals the command's output."""

import itertools
from dataclasses import replace
from urllib.parse import parse_qs

import pytest

from rightsizer_cli.main import execute
from rightsizer_cli.page.render import page_html, response_html, worked_html
from rightsizer_cli.page.response import respond
from rightsizer_engine.search.size import size

QUESTION = {"model": "gpt2", "tokens": "10B", "deadline": "3d", "gpu": "A100-SXM4-80GB"}


@pytest.fixture(scope="module")
def response():
    return respond(QUESTION, calibrate=False)


def test_the_verdict_is_the_commands(response, capsys):
    execute(["plan", "--no-calibration", *(w for k, v in QUESTION.items() for w in (f"--{k}", v))])
    assert capsys.readouterr().out.splitlines()[0] == response.verdict
    assert response.feasible


def test_bars_are_parts_of_their_whole(response):
    for parts in (response.step, response.memory):
        assert 0 < sum(bar.width for bar in parts) <= 100.01
        assert all(b.start == pytest.approx(a.start + a.width) for a, b in itertools.pairwise(parts))


def test_a_lever_leads_to_a_page_that_plans(response):
    address = next(link.address for link in response.levers if link.address)
    changed = {name: values[0] for name, values in parse_qs(address[1:]).items()}
    assert changed != QUESTION
    assert respond(changed, calibrate=False).feasible


def test_no_plan_is_a_result():
    late = respond(QUESTION | {"deadline": "1m", "max_gpus": "8"})
    assert not late.feasible
    assert late.verdict.startswith("no plan: deadline")
    assert "What would make it possible" in response_html(late)


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "'\" onfocus=alert(1) x='", "{{ 7*7 }}"])
def test_typed_text_stays_text(text):
    response = respond(QUESTION | {"model": text})
    page = page_html(QUESTION | {"model": text, "method": text}, response, {"models": [text]})
    assert response.error.startswith("--model: ")
    for harmful in ("<script>alert", " onfocus=alert(1) x='\"", "49"):
        assert harmful not in page


def test_a_worked_page_has_no_form_and_no_links_into_the_server(response):
    page = worked_html("A", response, picture="a.svg", others={"A": "a.html", "B": "b.html"})
    assert "<form" not in page
    assert "?model" not in page
    assert '<a href="b.html">B</a>' in page


def test_the_size_that_is_never_resized_is_that_of_its_own_search():
    """The layouts that are fastest on 3,456 GPUs do not divide the opening's number, nor twice it."""
    query = {"model": "deepseek-v3", "tokens": "14.8T", "deadline": "60d", "gpu": "H800"}
    staged = respond(query, calibrate=False).plan
    fixed = size(replace(staged.request, elastic=False), compared=False)
    assert staged.option.gpus < fixed.option.gpus == staged.staging.static_gpus
