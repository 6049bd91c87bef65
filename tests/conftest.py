import gc
import os

from hypothesis import settings

os.environ["RIGHTSIZER_CALIBRATION"] = ""  # no test reads or writes what this user has measured

# Keeps the unit suite near half a minute; `pytest --hypothesis-profile=thorough` looks longer
settings.register_profile("quick", max_examples=40, deadline=None)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile("quick")

gc.disable()  # while tests are collected: next to nothing of that is garbage


def pytest_collection_finish():
    """What was imported and collected stays to the end: no garbage collection need look through it again."""
    gc.freeze()
    gc.enable()
