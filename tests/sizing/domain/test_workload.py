import pytest

from rightsizer_engine.domain.workload import Workload, usual_batch_tokens


@pytest.mark.parametrize(
    ("parameters", "tokens", "least", "most"),
    [(7e9, 2e12, 4e6, 12e6), (67e9, 2e12, 9e6, 16e6), (405e9, 15.6e12, 16e6, 16e6), (1e6, 1e8, 1e3, 2e4)],
    ids=["DeepSeek 7B: 9.4M", "DeepSeek 67B: 18.9M", "Llama 3 405B: 16M", "a toy"],
)
def test_a_usual_batch_is_near_published_ones(parameters, tokens, least, most):
    assert least <= usual_batch_tokens(parameters=parameters, tokens=tokens) <= most


def test_steps_are_whole():
    job = Workload(tokens=1001, sequence_tokens=10, global_batch_sequences=10)
    assert job.steps == 11
