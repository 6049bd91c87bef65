"""The server serves this machine only, under its own name."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from rightsizer_cli.commands.serve import check_needed
from rightsizer_cli.page.engine import Engine
from rightsizer_cli.page.response import PageResponse
from rightsizer_cli.page.server import application
from rightsizer_engine.errors import InputError
from rightsizer_launch.bounded.process import ChildLimits
from rightsizer_launch.bounded.sizing_pool import SizingPool

Fetch = Callable[..., tuple[int, str, dict[str, str]]]
QUESTION = "?model=gpt2&tokens=1B&gpu=A100-SXM4-80GB&gpus=8"


LIMITS = ChildLimits(memory_bytes=1 << 30, keep_bytes=1 << 30, time_s=600.0)


def scripted(query: dict[str, str]) -> None:
    """The work of the processes of `computing`: sleep, or crash."""
    if query.get("model") == "crash":
        os.abort()
    time.sleep(float(query.get("tokens", "0")))


@pytest.fixture
def computing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine whose processes run `scripted`."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    engine = Engine(SizingPool(f"{Path(__file__).stem}:scripted", LIMITS, processes=2))
    engine.warm()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine()
    engine.warm()
    yield engine
    engine.close()


@pytest.fixture
def fetched(engine: Engine) -> Fetch:
    return partial(fetch, engine)


def fetch(engine: Engine, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    async def ask() -> tuple[int, str, dict[str, str]]:
        async with TestClient(TestServer(application(engine, soon_s=60))) as client:
            answer = await client.get(path, headers=headers)
            return answer.status, await answer.text(), dict(answer.headers)

    return asyncio.run(ask())


def test_the_page_holds_the_form_and_the_result(fetched: Fetch):
    status, text, headers = fetched(f"/{QUESTION}")
    assert status == 200
    assert 'value="gpt2"' in text
    assert "8 A100-SXM4-80GB" in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "http" not in text.replace("http-equiv", "")  # works offline


def test_the_picture_is_drawn_only_of_a_plan(fetched: Fetch):
    status, text, _ = fetched(f"/fan.svg{QUESTION}")
    assert (status, text.lstrip()[:5]) == (200, "<?xml")
    assert fetched("/fan.svg?model=none")[0] == 404


def test_a_mistake_is_one_line(fetched: Fetch):
    status, text, _ = fetched("/answer?model=gpt2&tokens=lots&gpu=H100")
    assert status == 200
    assert "--tokens: &#39;lots&#39;" in text
    assert "is no field of this page" in fetched("/?shoe_size=4")[1]


def test_a_page_without_its_result_requests_it_later(computing: Engine):
    async def ask() -> str:
        async with TestClient(TestServer(application(computing, soon_s=0.1))) as client:
            return await (await client.get("/?tokens=3600")).text()

    assert "data-pending" in asyncio.run(ask())


def test_abandoned_requests_delay_no_other(computing: Engine):
    async def ask() -> PageResponse | None:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(computing.ask({"tokens": "3600"}), 0.1)
        return await computing.ask({"tokens": "0"})

    assert asyncio.run(ask()) is None


def test_a_computation_that_the_system_kills_is_a_result(computing: Engine):
    async def ask() -> PageResponse:
        return await computing.ask({"model": "crash"})

    assert "is there memory left?" in asyncio.run(ask()).error


def test_another_site_may_link_here_and_load_nothing(fetched: Fetch):
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert fetched(f"/{QUESTION}", **elsewhere, **{"Sec-Fetch-Mode": "navigate"})[0] == 200
    assert fetched(f"/answer{QUESTION}", **elsewhere, **{"Sec-Fetch-Mode": "no-cors"})[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8600", "127.0.0.1.evil.example"])
def test_another_name_is_refused(host, fetched: Fetch):
    assert fetched("/", Host=host)[0] == 403


def test_only_its_own_files_are_served(fetched: Fetch):
    assert fetched("/style.css")[0] == 200
    assert fetched("/page.html")[0] == 404
    assert fetched("/..%2fserver.py")[0] == 404


def test_missing_parts_are_named():
    def find(name: str) -> None:
        if name == "aiohttp":
            raise ImportError

    with pytest.raises(InputError, match=r"needs aiohttp: pip install 'rightsizer\[page\]'"):
        check_needed(find=find)
