"""A training that fails, or never starts, in the way that its argument names."""

import os
import signal
import sys
import time

sys.stdout.write("the last line of the worker\x1b[31m\n")
sys.stdout.flush()
match sys.argv[1]:
    case "exit":
        sys.exit(int(sys.argv[2]))
    case "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    case "memory":
        held = [bytearray(os.urandom(1 << 20) * 64) for _ in range(1 << 10)]
    case "hang":
        time.sleep(1e6)
