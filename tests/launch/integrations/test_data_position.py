import pytest

from rightsizer_engine.errors import InputError
from rightsizer_launch.integrations.data_position import batch_size_of, skip_first


@pytest.fixture
def torch():
    """Imported where a test runs: to collect tests takes no torch."""
    return pytest.importorskip("torch")


@pytest.fixture
def loader(torch):
    def make(workers: int = 0, **values):
        data = torch.utils.data
        dataset = data.TensorDataset(torch.arange(24))
        sampler = data.DistributedSampler(dataset, num_replicas=1, rank=0, seed=3)
        return data.DataLoader(dataset, sampler=sampler, batch_size=4, num_workers=workers, **values)

    return make


def batches(data) -> list[list[int]]:
    return [batch.tolist() for (batch,) in data]


def test_the_first_batches_are_left_out_once(loader):
    whole, skipped = batches(loader()), loader()
    skip_first(skipped, 2)
    assert batches(skipped) == whole[2:]
    assert batches(skipped) == whole


def test_a_skipping_sampler_still_takes_the_epoch(loader):
    later, skipped = loader(), loader()
    skip_first(skipped, 1)
    for one in (later, skipped):
        one.batch_sampler.sampler.set_epoch(5)
    assert batches(skipped) == batches(later)[1:]


def test_a_batch_sampler_gives_its_batch_size(torch):
    data = torch.utils.data
    sampler = data.BatchSampler(range(24), 6, drop_last=False)
    assert batch_size_of(data.DataLoader(data.TensorDataset(torch.arange(24)), batch_sampler=sampler)) == 6


@pytest.mark.parametrize("data", [{"a": 1}, [1], None], ids=["dict", "list", "none"])
def test_data_without_a_batch_size_is_refused(data):
    with pytest.raises(InputError, match="one DataLoader that knows its batch size"):
        batch_size_of(data)
