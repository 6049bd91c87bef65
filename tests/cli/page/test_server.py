"""The server answers this machine, and nobody who came by another name."""

import asyncio

import pytest
from aiohttp.test_utils import TestClient, TestServer

from rightsizer.errors import InputError
from rightsizer_cli.commands.serve import check_needed
from rightsizer_cli.page.server import application

QUESTION = "?model=gpt2&tokens=1B&gpu=A100-SXM4-80GB&gpus=8"


def fetched(path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    async def ask() -> tuple[int, str, dict[str, str]]:
        async with TestClient(TestServer(application())) as client:
            answer = await client.get(path, headers=headers)
            return answer.status, await answer.text(), dict(answer.headers)

    return asyncio.run(ask())


def test_the_page_holds_the_form_and_the_answer():
    status, text, headers = fetched(f"/{QUESTION}")
    assert status == 200
    assert 'value="gpt2"' in text
    assert "8 A100-SXM4-80GB" in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "http" not in text.replace("http-equiv", "")  # works offline


def test_the_picture_is_drawn_only_of_a_plan():
    status, text, _ = fetched(f"/fan.svg{QUESTION}")
    assert (status, text.lstrip()[:5]) == (200, "<?xml")
    assert fetched("/fan.svg?model=none")[0] == 404


def test_a_mistake_is_one_line():
    status, text, _ = fetched("/answer?model=gpt2&tokens=lots&gpu=H100")
    assert status == 200
    assert "--tokens: &#39;lots&#39;" in text
    assert "is no field of this page" in fetched("/?shoe_size=4")[1]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8600", "127.0.0.1.evil.example"])
def test_another_name_is_refused(host):
    assert fetched("/", Host=host)[0] == 403


def test_only_its_own_files_are_served():
    assert fetched("/style.css")[0] == 200
    assert fetched("/page.html")[0] == 404
    assert fetched("/..%2fserver.py")[0] == 404


def test_what_is_missing_is_named():
    def find(name: str) -> None:
        if name == "aiohttp":
            raise ImportError

    with pytest.raises(InputError, match=r"needs aiohttp: pip install 'rightsizer\[page\]'"):
        check_needed(find=find)
