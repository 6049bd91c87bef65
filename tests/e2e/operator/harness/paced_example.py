"""The example's training on a smaller model than the plan's, with a pause after each step.

Plans of the tests train for as long as they are let: at full speed, or with the plan's model (a third of a
second of a core for each step), they would keep a small machine's cores from what the tests wait for.
"""

import os
import runpy
import sys
import time

from torch.optim.optimizer import register_optimizer_step_post_hook

PAUSE_S = 0.5

os.environ |= {"RIGHTSIZER_MODEL_LAYERS": "1", "RIGHTSIZER_MODEL_FFN_HIDDEN": "256"}
register_optimizer_step_post_hook(lambda *_: time.sleep(PAUSE_S))
sys.path.insert(0, os.getcwd())
runpy.run_path("train.py", run_name="__main__")
