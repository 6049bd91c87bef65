"""The one Prometheus client: bounded questions over HTTP, and answers that are either sound or Unknown."""

import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from rightsizer.errors import InputError
from rightsizer.values import immutable

__all__ = ["Access", "Answer", "Prometheus", "Row", "Series", "Unknown"]

_MOST_BYTES = 64 * 2**20


@immutable
class Access:
    """How to reach a Prometheus (or what speaks its API: Thanos, Mimir, VictoriaMetrics).

    `timeout_s` bounds one question as a whole. `token_file` is read again for each question: tokens of pods
    are rotated. Certificates are files in PEM.
    """

    url: str
    timeout_s: float = 10.0
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    token_file: Path | None = None
    user: str | None = None
    password_file: Path | None = None
    most_bytes: int = _MOST_BYTES


@immutable
class Unknown:
    """No answer that could be used, and why, in words for people."""

    reason: str


@immutable
class Row:
    """One series of an instant answer."""

    labels: Mapping[str, str]
    time_s: float
    value: float


@immutable
class Series:
    """One series of a range answer."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


Answer = Sequence[Row] | Unknown


class Prometheus:
    """A connection that is kept open over questions; a context manager."""

    def __init__(self, access: Access, *, transport: httpx.BaseTransport | None = None) -> None:
        self._access = access
        self._http = httpx.Client(
            base_url=_checked(access.url),
            timeout=access.timeout_s,
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

    def instant(self, query: str, *, at_s: float | None = None) -> Answer:
        """Every series at one moment (default: the server's now)."""
        found = self._ask("query", {"query": query, **({} if at_s is None else {"time": f"{at_s:.3f}"})})
        if isinstance(found, Unknown):
            return found
        if found.get("resultType") != "vector":
            return Unknown(reason=f"a vector was asked for, not a {str(found.get('resultType'))[:20]}")
        try:
            return [_row(item) for item in found["result"]]
        except (AttributeError, KeyError, TypeError, ValueError):
            return Unknown(reason="the answer is not in Prometheus's form")

    def range(self, query: str, *, start_s: float, end_s: float, step_s: float) -> Sequence[Series] | Unknown:
        """Every series over a span."""
        span = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        found = self._ask("query_range", {"query": query, **span})
        if isinstance(found, Unknown):
            return found
        if found.get("resultType") != "matrix":
            return Unknown(reason=f"a matrix was asked for, not a {str(found.get('resultType'))[:20]}")
        try:
            return [
                Series(
                    labels=_labels(item["metric"]),
                    points=tuple((float(at_s), float(value)) for at_s, value in item["values"]),
                )
                for item in found["result"]
            ]
        except (AttributeError, KeyError, TypeError, ValueError):
            return Unknown(reason="the answer is not in Prometheus's form")

    def _ask(self, path: str, form: dict[str, str]) -> dict[str, Any] | Unknown:
        """The data of an answer. A question goes by POST: many jobs make it longer than a URL may be."""
        began_s = time.monotonic()
        server_s = max(0.1, self._access.timeout_s * 0.9)
        try:
            with self._http.stream(
                "POST",
                f"api/v1/{path}",
                data={**form, "timeout": f"{server_s:.3f}"},
                auth=_auth(self._access),
            ) as answer:
                body = self._body(answer, began_s)
        except httpx.HTTPError as error:
            return Unknown(reason=f"{type(error).__name__}: {str(error)[:200]}")
        except OSError as error:
            return Unknown(reason=f"{error.strerror or type(error).__name__}: {error.filename or ''}")
        except UnicodeError:
            return Unknown(reason="the token or the password is not ASCII")
        if isinstance(body, Unknown):
            return body
        return _data(answer, body)

    def _body(self, answer: httpx.Response, began_s: float) -> bytes | Unknown:
        """The body, at most so long and so late: a server that trickles does not hold us."""
        parts, size = [], 0
        for part in answer.iter_bytes():
            size += len(part)
            if size > self._access.most_bytes:
                return Unknown(reason=f"the answer is longer than {self._access.most_bytes:,} bytes")
            if time.monotonic() - began_s > self._access.timeout_s:
                return Unknown(reason=f"no complete answer within {self._access.timeout_s:g} s")
            parts.append(part)
        return b"".join(parts)


def _data(answer: httpx.Response, body: bytes) -> dict[str, Any] | Unknown:
    """`data` of a sound answer. One with warnings may be partial (Thanos), so it is none."""
    try:
        found = httpx.Response(200, content=body).json()
    except (ValueError, RecursionError):
        return Unknown(reason=f"HTTP {answer.status_code}, and no JSON")
    if not isinstance(found, dict) or found.get("status") != "success" or answer.status_code != 200:
        told = found.get("error") if isinstance(found, dict) else None
        return Unknown(reason=f"HTTP {answer.status_code}: {str(told)[:200]}")
    if found.get("warnings"):
        return Unknown(reason=f"a partial answer: {str(found['warnings'])[:200]}")
    data = found.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("result"), list):
        return Unknown(reason="the answer is not in Prometheus's form")
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
    except (httpx.InvalidURL, TypeError):
        raise InputError("prometheus", value=url, remedy=remedy) from None
    if known.scheme not in {"http", "https"} or not known.host:
        raise InputError("prometheus", value=url, remedy=remedy)
    if known.userinfo:
        raise InputError("prometheus", value="***", remedy="no password in an address: use --user")
    return url if url.endswith("/") else f"{url}/"


def _tls(access: Access) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
        if access.cert_file is not None:
            context.load_cert_chain(access.cert_file, access.key_file)
    except (OSError, ssl.SSLError) as error:
        named = access.cert_file or access.ca_file
        remedy = f"is no usable PEM file: {error.strerror or 'unreadable'}"
        raise InputError("certificate", value=str(named), remedy=remedy) from None
    return context


def _auth(access: Access) -> httpx.Auth | None:
    if access.token_file is not None:
        return _Bearer(_secret(access.token_file))
    if access.user is not None:
        password = "" if access.password_file is None else _secret(access.password_file)
        return httpx.BasicAuth(access.user, password)
    return None


def _secret(path: Path) -> str:
    """A secret that a header can hold; UnicodeError where it is none."""
    return path.read_bytes().strip().decode("ascii")


class _Bearer(httpx.Auth):
    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Any:
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request
