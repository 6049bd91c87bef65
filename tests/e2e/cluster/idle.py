#!/usr/bin/env python3
"""The `python` of an image whose pods hold GPUs and stay idle.

Most tests of the operator ask where pods are and what it says of them. A start of torch in each pod would
take 3 s of processor time. The rendezvous pod accepts connections, which is what its readiness probe asks.
"""

import signal
import socketserver
import sys

PORT = 29400

signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
if "rightsizer_launch.worker.rendezvous" in sys.argv:
    socketserver.TCPServer(("", PORT), socketserver.BaseRequestHandler).serve_forever()
while True:
    signal.pause()
