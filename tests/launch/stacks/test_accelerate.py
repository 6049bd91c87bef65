from dataclasses import dataclass

import pytest

from rightsizer_launch.stacks.accelerate import seeded


@dataclass
class Configuration:
    """Stands for accelerate's DataLoaderConfiguration."""

    split_batches: bool = False
    use_seedable_sampler: bool = False
    data_seed: int | None = None


@pytest.mark.parametrize(("given", "seed"), [(None, 0), (0, 0), (7, 7)])
def test_data_is_shuffled_by_a_seed(given, seed):
    found = seeded(Configuration(split_batches=True, data_seed=given))
    assert (found.use_seedable_sampler, found.data_seed, found.split_batches) == (True, seed, True)
