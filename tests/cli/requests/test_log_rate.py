"""The training rate in the logs of common stacks."""

import pytest

from rightsizer_cli.requests.log_rate import rate_of
from rightsizer_engine.errors import InputError

MEGATRON = "iteration {n}/100 | elapsed time per iteration (ms): {ms} | global batch size: 512 |"


@pytest.mark.parametrize(
    ("lines", "tokens_per_s", "step"),
    [
        (
            [MEGATRON.format(n=n, ms=ms) for n, ms in ((10, 9000.0), (20, 8000.0), (30, 8000.0))],
            524_288.0,
            30,
        ),
        (["step: 10  loss: 7.1  memory: 50GiB  tps: 5,000  mfu: 40%"] * 3, 40_000.0, 10),
        (["step 7 | tok/s/gpu 1,000"] * 3, 8_000.0, 7),
        (["step 00100/21400 | loss 3.1 | dt: 400.00ms | tok/sec: 1,048,576"] * 3, 1_048_576.0, 100),
        (["iter 50: loss 3.2, time: 1s, dt: 4194.304 ms"] * 2, 1e6, 50),
        ([" 10%|# | 100/1000 [06:59<1:02:54,  4.19s/it]"] * 2, 4_194_304 / 4.19, None),
        ([" 10%|# | 100/1000 [00:50<07:30,  2.00it/s]"] * 2, 8_388_608.0, None),
        (["tokens_per_second: 1.5e6"] * 2, 1.5e6, None),
    ],
)
def test_the_rate_is_read_from_the_stacks_own_lines(lines, tokens_per_s, step):
    rate = rate_of("\n".join(["starting", *lines, "saved"]), batch_tokens=4_194_304, gpus=8)
    assert rate.tokens_per_s == pytest.approx(tokens_per_s)
    assert rate.step == step


@pytest.mark.parametrize(
    "text",
    [
        *("", "hello", "elapsed time per iteration (ms): nan", "tok/s: 0", "tok/s: 1e-9", "tok/s: 1e16"),
        *(f"tps: {'9' * 400}", "dt: 1e-323 ms", f", {'9' * 400}s/it"),
    ],
    ids=lambda text: text[:20],
)
def test_a_log_without_a_rate_is_refused_with_the_expected_form(text):
    with pytest.raises(InputError, match="Megatron-LM's iteration time"):
        rate_of(text, batch_tokens=1.0, gpus=1)


def test_a_step_with_too_many_digits_is_none():
    assert rate_of(f"step: {'9' * 5000} tps: 1.0", batch_tokens=1.0, gpus=1).step is None
