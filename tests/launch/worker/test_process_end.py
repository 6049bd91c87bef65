import subprocess
import sys

import pytest

SCRIPT = """
import multiprocessing, os, signal, sys
from rightsizer_launch.worker.process_end import keep_signals_from_children

def answer(pipe):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pipe.send("ready")
    pipe.send(pipe.recv())

if sys.argv[1] == "kept":
    keep_signals_from_children()
signal.signal(signal.SIGTERM, lambda *_: None)
ours, theirs = multiprocessing.Pipe()
child = multiprocessing.get_context("fork").Process(target=answer, args=(theirs,))
child.start()
ours.recv()
os.killpg(0, signal.SIGTERM)
ours.send("still there")
child.join()
print(child.exitcode)
"""


@pytest.mark.parametrize(("signals", "exit_code"), [("kept", 0), ("shared", -15)])
def test_a_signal_to_a_workers_group_leaves_its_data_loader_alone(signals, exit_code):
    argv = [sys.executable, "-c", SCRIPT, signals]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, start_new_session=True)
    assert int(done.stdout) == exit_code
