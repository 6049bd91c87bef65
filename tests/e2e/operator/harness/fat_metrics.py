"""A training script that serves more metrics than anybody reads, and trains nothing."""

import http.server

BODY = b"".join(b'user_metric{n="%d"} 1\n' % n for n in range(20_000))


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers all requests with the same metrics."""

    def do_GET(self) -> None:
        """Send them."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)


http.server.ThreadingHTTPServer(("0.0.0.0", 29401), Handler).serve_forever()  # noqa: S104 -- a pod's own
