"""A c10d rendezvous whose store holds only signed values, so that a forged one is never deserialised.

torch's c10d rendezvous unpickles its state from a TCPStore without authentication. Whoever reaches the port
runs code in every worker, and `list_keys()` makes a secret run id no secret. `SignedStore` puts an HMAC
(SHA-256) before each value and checks it on each read, before torch sees the value. The tag covers the key's
name, which holds the run id, the attempt and the round: a value cannot be replayed under another name. The
secret is a file that only this attempt's workers can read.

A forged state is dropped and the rendezvous starts afresh; workers that train are not disturbed.

Not covered: an attacker who keeps writing, deleting values or restoring old ones can stop a rendezvous, but
runs no code. PyTorch does not authenticate the workers' process group. A network policy
covers both.
"""

import datetime as dt
import hashlib
import hmac
import logging
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousParameters,
    RendezvousStateError,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import Token, create_handler
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from rightsizer_launch.worker.progress import ENV_RENDEZVOUS_KEY_FILE

BACKEND = "rightsizer"
"""The name of this rendezvous for torchrun's `--rdzv-backend`."""

_LOG = logging.getLogger("rightsizer.rendezvous")
_TAG_BYTES = hashlib.sha256().digest_size
_LEAST_KEY_BYTES = 16


class ForgedValueError(RendezvousStateError):
    """A value in the rendezvous store is not signed with this attempt's key: somebody else wrote it."""


class SignedStore(Store):
    """A store that signs each value it writes and checks each value it reads.

    Args:
        store: the store that holds the signed values.
        secret: the key of the HMAC, shared by the workers of one attempt.
    """

    def __init__(self, store: Store, secret: bytes) -> None:
        super().__init__()
        self._store, self._secret = store, secret

    def set(self, key: str, value: str | bytes) -> None:
        """Write a value with its signature."""
        self._store.set(key, self._sign(key, value))  # type: ignore[arg-type]  # takes bytes

    def get(self, key: str) -> bytes:
        """The value, checked. Raises `ForgedValueError` if its signature is wrong."""
        self._store.set_timeout(self.timeout)  # type: ignore[attr-defined]  # of torch's Store
        return self._verify(key, self._store.get(key))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Write `desired` if the value is `expected`; the value afterwards, checked."""
        # An empty `expected` means: only if the key is not there. It is no value, so it has no signature
        before = self._sign(key, expected) if expected else b""
        after = self._sign(key, desired)
        return self._verify(key, self._store.compare_set(key, before, after))  # type: ignore[arg-type]  # takes bytes

    def add(self, key: str, amount: int) -> int:
        """Add to a counter. Counters are plain numbers: they carry no code and are not signed."""
        return int(self._store.add(key, amount))

    def check(self, keys: list[str]) -> bool:
        """Whether all keys exist."""
        return bool(self._store.check(keys))

    def wait(self, keys: list[str], timeout: dt.timedelta | None = None) -> None:
        """Wait until all keys exist."""
        limit = self.timeout if timeout is None else timeout  # type: ignore[attr-defined]
        self._store.wait(keys, limit)

    def delete_key(self, key: str) -> bool:
        """Delete a key; whether it existed."""
        return bool(self._store.delete_key(key))

    def num_keys(self) -> int:
        """Number of keys in the store."""
        return int(self._store.num_keys())

    def _tag(self, key: str, value: bytes) -> bytes:
        return hmac.digest(self._secret, key.encode() + b"\0" + value, hashlib.sha256)

    def _sign(self, key: str, value: str | bytes) -> bytes:
        content = value.encode() if isinstance(value, str) else bytes(value)
        return self._tag(key, content) + content

    def _verify(self, key: str, signed_value: bytes) -> bytes:
        tag, content = signed_value[:_TAG_BYTES], signed_value[_TAG_BYTES:]
        if not hmac.compare_digest(tag, self._tag(key, content)):
            raise ForgedValueError(f"{key!r} in the rendezvous store is not signed with this attempt's key")
        return content


def _read_key(path: Path) -> bytes:
    """The attempt's key.

    Raises:
        RendezvousStateError: the file cannot be read, or is too short to be a key.
    """
    try:
        secret = path.read_bytes()
    except OSError as error:
        raise RendezvousStateError(f"cannot read the rendezvous key {path}: {error.strerror}") from error
    if len(secret) < _LEAST_KEY_BYTES:
        raise RendezvousStateError(f"the rendezvous key {path} has {len(secret)} bytes; write 32 random ones")
    return secret


def signed(store: Store, environment: Mapping[str, str] = os.environ) -> Store:
    """The store as this attempt's workers use it: signed where the attempt has a key."""
    path = environment.get(ENV_RENDEZVOUS_KEY_FILE)
    return SignedStore(store, _read_key(Path(path))) if path else store


def enable(environment: MutableMapping[str, str] = os.environ) -> None:
    """Make torchrun use the signed rendezvous, where the attempt has a key.

    Raises:
        RendezvousStateError: the key cannot be read. There is no fall-back to an unsigned rendezvous.
    """
    path = environment.get(ENV_RENDEZVOUS_KEY_FILE)
    if path:
        _read_key(Path(path))
        rendezvous_handler_registry.register(BACKEND, _handler)
        environment["PET_RDZV_BACKEND"] = BACKEND


class _Backend(C10dRendezvousBackend):
    """torch's backend, except that it drops a forged state: the rendezvous then starts afresh."""

    def __init__(self, store: Store, run_id: str) -> None:
        try:
            super().__init__(store, run_id)
        except ForgedValueError as error:
            self._drop(error)

    @property
    def name(self) -> str:
        return BACKEND  # torch checks that this is what was asked for

    def get_state(self) -> tuple[bytes, Token] | None:
        try:
            return super().get_state()
        except ForgedValueError as error:
            self._drop(error)
            return None

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        try:
            return super().set_state(state, token)
        except ForgedValueError as error:
            self._drop(error)
            return None

    def _drop(self, error: ForgedValueError) -> None:
        _LOG.warning("dropped a forged rendezvous state: %s", error)
        self._call_store("delete_key", self._key)
        self._call_store("compare_set", self._key, "", self._NULL_SENTINEL)


def _handler(parameters: RendezvousParameters) -> RendezvousHandler:
    host, port = parse_rendezvous_endpoint(parameters.endpoint, default_port=29400)
    timeout = dt.timedelta(seconds=parameters.get_as_int("read_timeout", 60) or 60)
    store = signed(TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timeout))
    return create_handler(store, _Backend(store, parameters.run_id), parameters)
