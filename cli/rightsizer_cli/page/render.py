"""The page as HTML: whole, or the answer alone."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

import jinja2

from rightsizer_cli.output.render import OPTION_COLUMNS
from rightsizer_cli.page import form
from rightsizer_cli.page.answer import Answer


@cache
def _templates() -> jinja2.Environment:
    loader = jinja2.FunctionLoader(lambda name: asset(name) if name.endswith(".html") else None)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["columns"] = [(name.lstrip(">"), name.startswith(">")) for name in OPTION_COLUMNS]
    return environment


def page_html(query: form.Query, answer: Answer, names: Mapping[str, Sequence[str]]) -> str:
    """The form with a query's values, and the answer. `names` are the lists of suggestions."""
    return _rendered("page.html", answer, query=query, groups=form.GROUPS, names=names)


def answer_html(answer: Answer) -> str:
    """The answer alone."""
    return _rendered("answer.html", answer)


def worked_html(title: str, answer: Answer, *, picture: str, others: Mapping[str, str]) -> str:
    """A page to read, without a form: one answer, and the addresses of others by their titles."""
    return _rendered("worked.html", answer, title=title, picture=picture, others=others, links=False)


def _rendered(template: str, answer: Answer, **more: object) -> str:
    values = {"answer": answer, "picture": f"fan.svg{answer.address}", "links": True} | more
    return _templates().get_template(template).render(values)


def asset(name: str) -> str:
    """A packaged file of the page."""
    return files("rightsizer_cli.page").joinpath("assets", name).read_text(encoding="utf-8")
