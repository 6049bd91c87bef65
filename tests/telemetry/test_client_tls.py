"""The client over real TLS on loopback: whom it believes, and what it tells to whom."""

import http.server
import json
import ssl
import threading

import pytest
import trustme

from rightsizer_engine.errors import InputError
from rightsizer_telemetry.client import FailedQuery, Prometheus, PrometheusSettings

ANSWER = {
    "status": "success",
    "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "1"]}]},
}
NAMES = {"localhost": "localhost", "address": "127.0.0.1"}


class Quiet(http.server.ThreadingHTTPServer):
    """A broken handshake is what some tests ask for: nothing to print."""

    def handle_error(self, *_):
        pass


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def serving(authority):
    """serving(name, ...): a server that speaks for this name; its port, and what it was told."""
    made = []

    def start(name, *, clients=None):
        told = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                told.append(self.headers.get("Authorization"))
                body = json.dumps(ANSWER).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        if clients is not None:
            clients.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        server = Quiet(("127.0.0.1", 0), Handler)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        made.append(server)
        return server.server_address[1], told

    yield start
    for server in made:
        server.shutdown()
        server.server_close()


@pytest.fixture
def file(tmp_path):
    """file(blob): a file with what trustme made."""

    def write(*blobs):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.pem"
        path.write_bytes(b"".join(blob.bytes() for blob in blobs))
        return path

    return write


def ask(port, host="localhost", **access):
    with Prometheus(PrometheusSettings(url=f"https://{host}:{port}", timeout_s=5.0, **access)) as client:
        return client.instant("up")


@pytest.mark.parametrize("host", NAMES.values(), ids=NAMES)
def test_a_server_of_the_stated_authority_is_believed_and_gets_the_token(
    authority, serving, file, host, tmp_path
):
    port, told = serving(host)
    ca_file = file(authority.cert_pem)
    token = tmp_path / "token"
    for word in ("first", "second"):  # tokens of pods are rotated
        token.write_text(f"{word}\n")
        assert ask(port, host, ca_file=ca_file, token_file=token)[0].value == 1.0
    assert told == ["Bearer first", "Bearer second"]


def test_a_server_of_another_authority_gets_no_request(serving, file, tmp_path):
    port, told = serving("localhost")
    token = tmp_path / "token"
    token.write_text("secret")
    found = ask(port, ca_file=file(trustme.CA().cert_pem), token_file=token)
    assert isinstance(found, FailedQuery)
    assert "certificate verify failed" in found.reason
    assert told == []


def test_a_server_that_no_public_authority_knows_is_not_believed(serving):
    port, told = serving("localhost")
    assert "certificate verify failed" in ask(port).reason
    assert told == []


def test_a_certificate_for_another_name_is_not_believed(authority, serving, file):
    port, told = serving("elsewhere.test")
    found = ask(port, ca_file=file(authority.cert_pem))
    assert isinstance(found, FailedQuery)
    assert "not valid for 'localhost'" in found.reason
    assert told == []


@pytest.mark.parametrize("known", [True, False], ids=["ours", "nobody-s"])
def test_a_server_that_requires_a_client_certificate_gets_ours(authority, serving, file, known):
    port, told = serving("localhost", clients=authority)
    ours = (authority if known else trustme.CA()).issue_cert("client.test")
    found = ask(
        port,
        ca_file=file(authority.cert_pem),
        cert_file=file(*ours.cert_chain_pems),
        key_file=file(ours.private_key_pem),
    )
    assert isinstance(found, FailedQuery) is not known
    assert len(told) == known


def test_a_file_that_is_no_certificate_is_refused_by_name(file, tmp_path):
    path = tmp_path / "not.pem"
    path.write_text("nothing")
    with pytest.raises(InputError, match=r"not\.pem"):
        ask(1, ca_file=path)
