"""The signed store over torch's stores of this process, and the rendezvous that drops a forged state."""

import base64
import datetime as dt
import logging
from importlib.util import find_spec

import pytest

from rightsizer_launch.worker import rendezvous
from rightsizer_launch.worker.progress import ENV_RENDEZVOUS_KEY_FILE

# found, not imported: collecting tests takes no torch
pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

KEY = b"0123456789abcdef"
STATE = "torch.rendezvous.run-a1"


@pytest.fixture
def plain():
    from torch.distributed import HashStore  # noqa: PLC0415 -- seconds of import

    return HashStore()


@pytest.fixture
def store(plain):
    from rightsizer_launch.worker.signed_rendezvous import SignedStore  # noqa: PLC0415

    return SignedStore(plain, KEY)


def forged():
    from rightsizer_launch.worker.signed_rendezvous import ForgedValueError  # noqa: PLC0415

    return pytest.raises(ForgedValueError, match="is not signed with this attempt's key")


def test_a_value_comes_back_and_is_32_bytes_longer_in_the_store(store, plain):
    store.set("a", "text")
    assert (store.get("a"), len(plain.get("a"))) == (b"text", 32 + 4)


@pytest.mark.parametrize("value", [b"", b"x", b"y" * 40], ids=["empty", "short", "long"])
def test_a_value_without_the_signature_is_refused(store, plain, value):
    plain.set("a", value)
    with forged():
        store.get("a")


def test_a_signed_value_cannot_be_replayed_under_another_name(store, plain):
    store.set("a", b"1")
    plain.set("b", plain.get("a"))
    with forged():
        store.get("b")


def test_a_value_signed_with_another_key_is_refused(store, plain):
    from rightsizer_launch.worker.signed_rendezvous import SignedStore  # noqa: PLC0415

    SignedStore(plain, KEY[::-1]).set("a", b"1")
    with forged():
        store.get("a")


def test_compare_set_writes_only_over_the_value_that_is_expected(store):
    assert store.compare_set("a", "", "1") == b"1"
    assert store.compare_set("a", "2", "3") == b"1"
    assert store.compare_set("a", "1", "3") == b"3"
    assert store.get("a") == b"3"


def test_counters_and_keys_are_the_store_s_own(store, plain):
    assert (store.add("n", 2), store.add("n", 3), plain.add("n", 0)) == (2, 5, 5)
    store.set("a", b"1")
    store.wait(["a"])
    store.wait(["a"], dt.timedelta(seconds=1))
    assert (store.check(["a"]), store.num_keys()) == (True, plain.num_keys())
    assert (store.delete_key("a"), store.check(["a"])) == (True, False)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read the rendezvous key"), (b"short", "has 5 bytes; write 32 random ones")],
    ids=["no file", "too short"],
)
def test_a_key_that_cannot_be_used_is_refused(tmp_path, content, message):
    from torch.distributed.elastic.rendezvous import RendezvousStateError  # noqa: PLC0415

    from rightsizer_launch.worker.signed_rendezvous import enable  # noqa: PLC0415

    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RendezvousStateError, match=message):
        enable({ENV_RENDEZVOUS_KEY_FILE: str(path)})


def test_without_a_key_nothing_is_signed(plain):
    from rightsizer_launch.worker.signed_rendezvous import enable, signed  # noqa: PLC0415

    variables = {}
    enable(variables)
    assert variables == {}
    assert signed(plain, variables) is plain


@pytest.fixture
def server():
    """torch's store at a free port of this machine."""
    from torch.distributed import TCPStore  # noqa: PLC0415

    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def test_a_rendezvous_drops_a_forged_state_and_starts_afresh(server, tmp_path, monkeypatch, caplog):
    from torch.distributed.elastic.rendezvous import RendezvousParameters  # noqa: PLC0415
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler  # noqa: PLC0415

    from rightsizer_launch.worker.signed_rendezvous import BACKEND, enable  # noqa: PLC0415

    path = tmp_path / "key"
    path.write_bytes(KEY)
    variables = {ENV_RENDEZVOUS_KEY_FILE: str(path)}
    monkeypatch.setenv(ENV_RENDEZVOUS_KEY_FILE, str(path))
    enable(variables)
    assert variables["PET_RDZV_BACKEND"] == BACKEND
    endpoint, state = f"127.0.0.1:{server.port}", base64.b64encode(b"a pickle").decode()
    server.set(STATE, state)
    with caplog.at_level(logging.WARNING, "rightsizer.rendezvous"):
        handler = get_rendezvous_handler(RendezvousParameters(BACKEND, endpoint, "run-a1", 1, 1))
        assert "dropped a forged rendezvous state" in caplog.text
        caplog.clear()
        server.set(STATE, state)
        assert not handler.is_closed()
        assert "dropped a forged rendezvous state" in caplog.text
    handler.shutdown()
    assert server.get(STATE) != state.encode()


def test_a_finished_run_is_recorded_in_its_store(server):
    variables = {"PET_RDZV_ENDPOINT": f"127.0.0.1:{server.port}", "PET_RDZV_ID": "run"}
    assert rendezvous.reachable("127.0.0.1", server.port)
    rendezvous.mark_complete(variables)
    assert rendezvous.was_complete(variables)
    assert not server.check(["rightsizer/other/complete"])
