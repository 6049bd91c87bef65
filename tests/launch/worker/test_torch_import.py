import gc

import pytest

from rightsizer_launch.worker.torch_import import uncollected


def test_no_garbage_is_collected_in_the_block_and_its_objects_are_frozen() -> None:
    before = gc.get_freeze_count()
    try:
        with uncollected():
            assert not gc.isenabled()
            made: list[list[int]] = [[] for _ in range(1000)]
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + len(made)
    finally:
        gc.unfreeze()


def test_garbage_is_collected_again_after_a_failed_import() -> None:
    try:
        with pytest.raises(ImportError), uncollected():
            raise ImportError("no torch here")
        assert gc.isenabled()
    finally:
        gc.unfreeze()
