"""The page as HTML: whole, or the response alone."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

import jinja2

from rightsizer_cli.output.render import OPTION_COLUMNS
from rightsizer_cli.page import form
from rightsizer_cli.page.response import PageResponse


@cache
def _templates() -> jinja2.Environment:
    loader = jinja2.FunctionLoader(lambda name: asset(name) if name.endswith(".html") else None)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["columns"] = [(name.lstrip(">"), name.startswith(">")) for name in OPTION_COLUMNS]
    return environment


def page_html(query: form.Query, response: PageResponse, names: Mapping[str, Sequence[str]]) -> str:
    """The form with a query's values, and the response. `names` are the lists of suggestions."""
    return _rendered("page.html", response, query=query, groups=form.GROUPS, names=names)


def response_html(response: PageResponse) -> str:
    """The response alone."""
    return _rendered("response.html", response)


def worked_html(title: str, response: PageResponse, *, picture: str, others: Mapping[str, str]) -> str:
    """A page to read, without a form: one response, and the addresses of others by their titles."""
    return _rendered("worked.html", response, title=title, picture=picture, others=others, links=False)


def _rendered(template: str, response: PageResponse, **more: object) -> str:
    values = {"response": response, "picture": f"fan.svg{response.address}", "links": True} | more
    return _templates().get_template(template).render(values)


def asset(name: str) -> str:
    """A packaged file of the page."""
    return files("rightsizer_cli.page").joinpath("assets", name).read_text(encoding="utf-8")
