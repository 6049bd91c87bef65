"""A stand-in for the Prometheus that several commands query."""

import http.server
import json
import threading
from urllib.parse import parse_qs

import pytest

HOLDER = {"executor": "kubernetes", "namespace": "team", "workload": "llama"}
NOW_S = 1_700_000_000.0


class StandIn:
    """Answers as a Prometheus: `families` last so many seconds; `values` by a part of the query."""

    def __init__(self, families, values=()):
        self.families, self.values = families, dict(values)

    def answer(self, path, form):
        query = form["query"][0]
        if path.endswith("query_range"):
            return "matrix", self.ranges(form) if "family" in query else []
        if query in {"vector(1)", "vector(time())"}:
            return "vector", [{"metric": {}, "value": [NOW_S, str(NOW_S)]}]
        value = next((value for part, value in self.values.items() if part in query), None)
        return "vector", [] if value is None else [{"metric": HOLDER, "value": [NOW_S, str(value)]}]

    def ranges(self, form):
        end_s, step_s = float(form["end"][0]), float(form["step"][0])
        return [
            {
                "metric": {"family": name},
                "values": [[end_s - step_s * i, "1"] for i in range(int(n / step_s) + 1)],
            }
            for name, n in self.families.items()
        ]


@pytest.fixture
def served():
    """Starts a stand-in on a free port; its address."""
    servers = []

    def start(stand_in):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                kind, result = stand_in.answer(self.path, form)
                document = {"status": "success", "data": {"resultType": kind, "result": result}}
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
