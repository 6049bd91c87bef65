"""The Prometheus client: bounded queries over HTTP; each returns sound data or FailedQuery."""

import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from rightsizer_api.untrusted_text import read_bytes
from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable

_MOST_BYTES = 64 * 2**20
_LONGEST_SECRET = 65_536


@immutable
class PrometheusSettings:
    """The connection to a Prometheus (or a server with its API: Thanos, Mimir, VictoriaMetrics).

    `timeout_s` bounds one query as a whole. `token_file` is read again for each query: tokens of pods
    are rotated. Certificates are files in PEM. `tenant` goes in Mimir's header.
    """

    url: str
    timeout_s: float = 10.0
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    token_file: Path | None = None
    user: str | None = None
    password_file: Path | None = None
    tenant: str = ""
    most_bytes: int = _MOST_BYTES


@immutable
class FailedQuery:
    """A query without a usable response, and the reason."""

    reason: str


@immutable
class Row:
    """One series of an instant response."""

    labels: Mapping[str, str]
    time_s: float
    value: float


@immutable
class Series:
    """One series of a range response."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


QueryResult = Sequence[Row] | FailedQuery


class Prometheus:
    """A connection that is kept open over questions; a context manager."""

    def __init__(self, access: PrometheusSettings, *, transport: httpx.BaseTransport | None = None) -> None:
        self._access = access
        self._http = httpx.Client(
            base_url=_checked(access.url),
            timeout=access.timeout_s,
            headers={"X-Scope-OrgID": _tenant(access.tenant)} if access.tenant else None,
            verify=_tls(access) if access.url.startswith("https:") else False,
            transport=transport,
            follow_redirects=False,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def instant(self, query: str, *, at_s: float | None = None) -> QueryResult:
        """Every series at one moment (default: the server's now)."""
        document = self._ask("query", {"query": query, **({} if at_s is None else {"time": f"{at_s:.3f}"})})
        if isinstance(document, FailedQuery):
            return document
        if document.get("resultType") != "vector":
            return FailedQuery(reason=f"expected a vector, got a {str(document.get('resultType'))[:20]}")
        try:
            return [_row(item) for item in document["result"]]
        except (AttributeError, KeyError, TypeError, ValueError):
            return FailedQuery(reason="the answer is not in Prometheus's form")

    def range(
        self, query: str, *, start_s: float, end_s: float, step_s: float
    ) -> Sequence[Series] | FailedQuery:
        """Every series over a span."""
        span = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        document = self._ask("query_range", {"query": query, **span})
        if isinstance(document, FailedQuery):
            return document
        if document.get("resultType") != "matrix":
            return FailedQuery(reason=f"expected a matrix, got a {str(document.get('resultType'))[:20]}")
        try:
            return [
                Series(
                    labels=_labels(item["metric"]),
                    points=tuple((float(at_s), float(value)) for at_s, value in item["values"]),
                )
                for item in document["result"]
            ]
        except (AttributeError, KeyError, TypeError, ValueError):
            return FailedQuery(reason="the answer is not in Prometheus's form")

    def _ask(self, path: str, form: dict[str, str]) -> dict[str, Any] | FailedQuery:
        """The data of a response. A query goes by POST: many jobs make it longer than a URL may be."""
        began_s = time.monotonic()
        server_s = max(0.1, self._access.timeout_s * 0.9)
        try:
            with self._http.stream(
                "POST",
                f"api/v1/{path}",
                data={**form, "timeout": f"{server_s:.3f}"},
                auth=_auth(self._access),
            ) as response:
                body = self._body(response, began_s)
        except httpx.HTTPError as error:
            return FailedQuery(reason=f"{type(error).__name__}: {str(error)[:200]}")
        except InputError as error:
            return FailedQuery(reason=f"{error.field}: {error.value}: {error.remedy}")
        if isinstance(body, FailedQuery):
            return body
        return _data(response, body)

    def _body(self, response: httpx.Response, began_s: float) -> bytes | FailedQuery:
        """The body, at most so long and so late: a server that trickles does not hold us."""
        parts, size = [], 0
        for part in response.iter_bytes():
            size += len(part)
            if size > self._access.most_bytes:
                return FailedQuery(reason=f"the answer is longer than {self._access.most_bytes:,} bytes")
            if time.monotonic() - began_s > self._access.timeout_s:
                return FailedQuery(reason=f"no complete answer within {self._access.timeout_s:g} s")
            parts.append(part)
        return b"".join(parts)


def _data(response: httpx.Response, body: bytes) -> dict[str, Any] | FailedQuery:
    """The `data` of a valid response. One with warnings may be partial (Thanos), so it is none."""
    try:
        document = httpx.Response(200, content=body).json()
    except (ValueError, RecursionError):
        return FailedQuery(reason=f"HTTP {response.status_code}, and no JSON")
    if not isinstance(document, dict) or document.get("status") != "success" or response.status_code != 200:
        told = document if isinstance(document, dict) else {}
        reported = told.get("error") or told.get("message")  # the latter: Kubernetes, whose proxy we came by
        return FailedQuery(reason=f"HTTP {response.status_code}: {str(reported)[:200]}")
    if document.get("warnings"):
        return FailedQuery(reason=f"a partial answer: {str(document['warnings'])[:200]}")
    data = document.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("result"), list):
        return FailedQuery(reason="the answer is not in Prometheus's form")
    return data


def _row(item: Any) -> Row:
    at_s, value = item["value"]
    return Row(labels=_labels(item["metric"]), time_s=float(at_s), value=float(value))


def _labels(metric: Any) -> dict[str, str]:
    if not all(isinstance(text, str) for pair in metric.items() for text in pair):
        raise TypeError("labels")
    return dict(metric)


def _checked(url: str) -> str:
    """The address with a final slash, so that a path in front of the API is kept."""
    remedy = "give it as http://host:9090 or https://host/path"
    try:
        known = httpx.URL(url)
    except (httpx.InvalidURL, TypeError, UnicodeError):
        raise InputError("prometheus", value=url, remedy=remedy) from None
    if known.scheme not in {"http", "https"} or not known.host:
        raise InputError("prometheus", value=url, remedy=remedy)
    if known.userinfo:
        raise InputError("prometheus", value="***", remedy="no password in an address: use --user")
    return url if url.endswith("/") else f"{url}/"


def _tenant(name: str) -> str:
    if not (name.isascii() and name.isprintable()):
        raise InputError("tenant", value=name, remedy="must be ASCII without control characters")
    return name


def _tls(access: PrometheusSettings) -> ssl.SSLContext:
    for path in (access.ca_file, access.cert_file, access.key_file):
        if path is not None and not path.is_file():  # OpenSSL reads a device for ever
            raise InputError("certificate", value=str(path), remedy="is no regular file")
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
        if access.cert_file is not None:
            context.load_cert_chain(access.cert_file, access.key_file, password=b"")  # never asks
    except (OSError, ssl.SSLError) as error:
        named = access.cert_file or access.ca_file
        remedy = f"is no usable PEM file: {error.strerror or 'unreadable'}"
        raise InputError("certificate", value=str(named), remedy=remedy) from None
    return context


def _auth(access: PrometheusSettings) -> httpx.Auth | None:
    if access.token_file is not None:
        return _Bearer(_secret(access.token_file, "token"))
    if access.user is not None:
        password = "" if access.password_file is None else _secret(access.password_file, "password")
        return httpx.BasicAuth(access.user, password)
    return None


def _secret(path: Path, field: str) -> str:
    """A secret that a header can hold."""
    secret = read_bytes(path, field=field, most_bytes=_LONGEST_SECRET).strip()
    if not all(0x20 <= byte < 0x7F for byte in secret):
        raise InputError(field, value=str(path), remedy="is not one line of ASCII")
    return secret.decode()


class _Bearer(httpx.Auth):
    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Any:
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request
