"""The paced training of tests/e2e with half a second a step, as workers of a plan run it.

Plans of the tests train for as long as they are let: at full speed they would keep a small machine's cores
from what the tests wait for. `paced_example.py` is for tests that need the example's own training.
"""

import os
import runpy
from pathlib import Path

os.environ.setdefault("STEP_SECONDS", "0.5")
runpy.run_path(str(Path(__file__).parents[2] / "paced_train.py"), run_name="__main__")
