import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from rightsizer_engine.errors import InputError
from rightsizer_launch.integrations.data_position import batch_size_of, skip_first


def loader(workers: int = 0, **values) -> DataLoader:
    dataset = TensorDataset(torch.arange(24))
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0, seed=3)
    return DataLoader(dataset, sampler=sampler, batch_size=4, num_workers=workers, **values)


def batches(data) -> list[list[int]]:
    return [batch.tolist() for (batch,) in data]


def test_the_first_batches_are_left_out_once():
    whole, skipped = batches(loader()), loader()
    skip_first(skipped, 2)
    assert batches(skipped) == whole[2:]
    assert batches(skipped) == whole


def test_a_skipping_sampler_still_takes_the_epoch():
    later, skipped = loader(), loader()
    skip_first(skipped, 1)
    for one in (later, skipped):
        one.batch_sampler.sampler.set_epoch(5)
    assert batches(skipped) == batches(later)[1:]


def test_a_batch_sampler_gives_its_batch_size():
    sampler = torch.utils.data.BatchSampler(range(24), 6, drop_last=False)
    assert batch_size_of(DataLoader(TensorDataset(torch.arange(24)), batch_sampler=sampler)) == 6


@pytest.mark.parametrize("data", [{"a": 1}, [1], None], ids=["dict", "list", "none"])
def test_data_without_a_batch_size_is_refused(data):
    with pytest.raises(InputError, match="one DataLoader that knows its batch size"):
        batch_size_of(data)
