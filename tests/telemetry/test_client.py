"""The client with responses of every kind; each test passes the function that responds."""

import json

import httpx
import pytest

from rightsizer_engine.errors import InputError
from rightsizer_telemetry.client import FailedQuery, Prometheus, PrometheusSettings, Row

ACCESS = PrometheusSettings(url="http://prometheus.test:9090/prefix", timeout_s=2.0, most_bytes=2000)


def client(answer, access=ACCESS):
    return Prometheus(access, transport=httpx.MockTransport(answer))


def vector(*values, **more):
    rows = [{"metric": {"job": "a"}, "value": [5.0, value]} for value in values]
    body = {"status": "success", "data": {"resultType": "vector", "result": rows}, **more}
    return httpx.Response(200, json=body)


def test_an_instant_response_is_rows():
    with client(lambda _: vector("1.5")) as prometheus:
        assert prometheus.instant("up") == [Row(labels={"job": "a"}, time_s=5.0, value=1.5)]


def test_a_question_is_posted_under_the_prefix_with_its_own_time_limit():
    seen = []

    def answer(request):
        seen.append((request.method, request.url.path, dict(httpx.QueryParams(request.content.decode()))))
        return vector()

    with client(answer) as prometheus:
        prometheus.instant('up{a="&="}', at_s=7)
    asked = {"query": 'up{a="&="}', "time": "7.000", "timeout": "1.800"}
    assert seen == [("POST", "/prefix/api/v1/query", asked)]


def test_a_range_response_is_series():
    series = {"metric": {"job": "a"}, "values": [[1, "2"], [3, "NaN"]]}
    body = {"status": "success", "data": {"resultType": "matrix", "result": [series]}}
    with client(lambda _: httpx.Response(200, json=body)) as prometheus:
        (one,) = prometheus.range("up", start_s=0, end_s=4, step_s=2)
    assert (one.points[0], str(one.points[1][1])) == ((1.0, 2.0), "nan")


GARBAGE = {
    "html": httpx.Response(200, text="<html>login</html>"),
    "empty": httpx.Response(200, content=b""),
    "redirect": httpx.Response(302, headers={"location": "http://elsewhere.test/"}),
    "forbidden": httpx.Response(403, text="no"),
    "error": httpx.Response(422, json={"status": "error", "error": "query timed out"}),
    "list": httpx.Response(200, json=[1]),
    "null": httpx.Response(200, json=None),
    "no data": httpx.Response(200, json={"status": "success"}),
    "scalar": httpx.Response(200, json={"status": "success", "data": {"resultType": "scalar", "result": []}}),
    "partial": vector("1", warnings=["store gateway unreachable"]),
    "words for a number": vector("many"),
    "number for a label": httpx.Response(
        200,
        json={
            "status": "success",
            "data": {"resultType": "vector", "result": [{"metric": {"job": 1}, "value": [1, "1"]}]},
        },
    ),
    "deep": httpx.Response(200, text="[" * 900),
    "long": httpx.Response(200, text=json.dumps({"status": "success", "x": "y" * 3000})),
}


def test_an_error_of_the_api_server_s_proxy_is_reported():
    refused = httpx.Response(503, json={"kind": "Status", "message": "no endpoints available"})
    with client(lambda _: refused) as prometheus:
        assert prometheus.instant("up") == FailedQuery(reason="HTTP 503: no endpoints available")


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE)
def test_an_invalid_response_is_unknown_with_a_reason(answer):
    with client(lambda _: answer) as prometheus:
        found = prometheus.instant("up")
    assert isinstance(found, FailedQuery)
    assert found.reason


def refuse(request):
    raise httpx.ConnectError("connection refused", request=request)


def stall(request):
    raise httpx.ReadTimeout("", request=request)


@pytest.mark.parametrize("answer", [refuse, stall], ids=["refused", "too late"])
def test_a_server_that_is_not_there_is_unknown(answer):
    with client(answer) as prometheus:
        assert isinstance(prometheus.instant("up"), FailedQuery)
        assert isinstance(prometheus.range("up", start_s=0, end_s=1, step_s=1), FailedQuery)


def authorization(access):
    seen = []

    def answer(request):
        seen.append(request.headers.get("authorization"))
        return vector()

    with client(answer, access) as prometheus:
        yield prometheus, seen


def test_a_token_is_read_again_for_each_question(tmp_path):
    token = tmp_path / "token"
    access = PrometheusSettings(url="http://prometheus.test", token_file=token)
    for prometheus, seen in authorization(access):
        token.write_text("one\n")
        prometheus.instant("up")
        token.write_text("two\n")
        prometheus.instant("up")
        token.unlink()
        assert isinstance(prometheus.instant("up"), FailedQuery)
        assert seen == ["Bearer one", "Bearer two"]


def test_a_token_that_no_header_can_hold_is_unknown(tmp_path):
    token = tmp_path / "token"
    token.write_text("t\u00f6k\u00e9n")
    for prometheus, seen in authorization(PrometheusSettings(url="http://prometheus.test", token_file=token)):
        assert isinstance(prometheus.instant("up"), FailedQuery)
        assert seen == []


def test_basic_authentication(tmp_path):
    password = tmp_path / "password"
    password.write_text("open sesame\n")
    access = PrometheusSettings(url="http://prometheus.test", user="ada", password_file=password)
    for prometheus, seen in authorization(access):
        prometheus.instant("up")
        assert seen == ["Basic YWRhOm9wZW4gc2VzYW1l"]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "prometheus:9090",
        "ftp://prometheus",
        "http://",
        "http://user:secret@prometheus",
        "http://[::1",
        "http://\udcff",
    ],
    ids=["empty", "no scheme", "ftp", "no host", "password inside", "broken", "no text"],
)
def test_an_address_that_is_none_is_refused_without_showing_a_password(url):
    with pytest.raises(InputError) as error:
        Prometheus(PrometheusSettings(url=url))
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("tenant", ["\u00e9", "\udcff", "a\nX-Other: b"], ids=["accent", "no text", "line"])
def test_a_tenant_that_no_header_can_hold_is_refused(tenant):
    with pytest.raises(InputError, match=r"^tenant: "):
        Prometheus(PrometheusSettings(url="http://prometheus.test", tenant=tenant))


def test_a_certificate_that_is_none_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"ca\.pem"):
        Prometheus(PrometheusSettings(url="https://prometheus.test", ca_file=tmp_path / "ca.pem"))
