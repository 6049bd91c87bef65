import pytest

from rightsizer_engine.errors import InputError
from rightsizer_launch.stacks.batch import accumulation_for, batch_for
from rightsizer_launch.worker.job_environment import JobLayout


def layout(**values):
    return JobLayout(global_batch_sequences=48, sequence_tokens=128, **values)


@pytest.mark.parametrize("dp", [1, 2, 3, 4, 6, 48])
@pytest.mark.parametrize("micro_batch", [1, 5, 8, 100])
def test_the_global_batch_stays(dp, micro_batch):
    batch = batch_for(layout(dp=dp, micro_batch=micro_batch))
    assert batch.micro_batch * batch.micro_batches * dp == 48
    assert batch.micro_batch <= micro_batch
    assert batch.tokens == 48 * 128


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(InputError, match="does not divide by 5"):
        batch_for(layout(dp=5))


@pytest.mark.parametrize(("dp", "micro_batches"), [(1, 6), (2, 3), (6, 1)])
def test_a_scripts_own_micro_batch_is_accumulated(dp, micro_batches):
    assert accumulation_for(layout(dp=dp), 8) == micro_batches


def test_a_scripts_micro_batch_that_does_not_divide_is_refused():
    with pytest.raises(InputError, match="4 data-parallel workers x the script's batch size 8"):
        accumulation_for(layout(dp=4), 8)


def test_without_a_plan_the_script_keeps_its_batch():
    assert batch_for(JobLayout()) is None
    assert accumulation_for(JobLayout(), 8) is None
