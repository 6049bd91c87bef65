"""The page for the owner of the budget: what to do and what it saves, before anything else."""

import re
from dataclasses import replace

import pytest

from rightsizer_telemetry.coverage import Coverage
from rightsizer_telemetry.html_report import page
from rightsizer_telemetry.savings import savings
from rightsizer_telemetry.usage import Usage, UsageReport

WEEK_S = 7 * 86400.0
COVERAGE = Coverage(gpu_s=WEEK_S, recorded=True, sources={})


def use(workload, gpus, busy, *, now=None, busy_max=1.0, price=2.0, **more):
    held = gpus * WEEK_S / 3600
    return Usage(
        executor="kubernetes",
        namespace="nlp",
        workload=workload,
        gpus=gpus if now is None else now,
        peak_gpus=gpus,
        held_gpu_h=held,
        used_gpu_h=None if busy is None else busy * held,
        idle_gpu_h=None if busy is None else (1 - busy) * held,
        busy_max=None if busy is None else busy_max,
        price_usd_per_gpu_h=price,
        **more,
    )


def report(*workloads):
    return UsageReport(
        at_s=1_780_000_000.0, window_s=WEEK_S, step_s=300.0, coverage=COVERAGE, workloads=workloads
    )


FULL = use("full", 8, 0.9)
HALF = use("half", 8, 0.4, plan="half")
IDLE = use("notebook", 2, 0.0, busy_max=0.0)
ENDED = use("ended", 8, 0.2, now=0)
UNKNOWN = use("dark", 16, None)


def words(html):
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL).split())


def test_savings_are_the_gpus_too_many_dearest_first():
    found = savings(report(FULL, IDLE, HALF, UNKNOWN))
    assert [(one.use.workload, one.gpus, one.gpu_h) for one in found.each] == [
        ("half", 4, 4 * 168),
        ("notebook", 2, 2 * 168),
    ]
    assert (found.gpu_h, found.usd) == (6 * 168, 12 * 168)


def test_the_page_opens_with_the_advice_and_its_savings():
    text = words(page(report(FULL, HALF, IDLE, ENDED)))
    assert text.index("2,016 GPU-h, $4,032, could have been saved") < text.index(
        "Give it 4 GPUs instead of 8"
    )
    assert "At this rate a month wastes 8,640 GPU-h, $17,280" in text
    assert "busy 40% of the time (plan half) saves 672 GPU-h, $1,344 4 GPUs 672 GPU-h $1,344" in text
    assert "No kernel ran on its 2 GPUs: stop it" in text
    assert "Next time, give it 2 GPUs instead of 8" in text
    assert text.index("stop it") < text.index("GPUs over time")


@pytest.mark.parametrize(
    ("workloads", "said"),
    [
        ((FULL,), "Nothing to do: no measured workload has too many GPUs"),
        ((UNKNOWN,), "Nothing is measured , so nothing can be advised: 2,688 GPU-h were held"),
        ((FULL, UNKNOWN), "2,688 GPU-h are not measured"),
        ((use("x", 8, 0.4, price=None),), "672 GPU-h could have been saved"),
        ((HALF, use("x", 8, 0.4, price=None)), "Without the 1 workloads whose GPUs have no known price"),
        (tuple(use(f"w{i}", 4, 0.2) for i in range(12)), "2 more workloads need fewer GPUs"),
    ],
    ids=["all needed", "unmeasured", "partly measured", "no price", "one without price", "many"],
)
def test_the_page_lists_the_advice_that_it_cannot_give(workloads, said):
    assert said in words(page(report(*workloads)))


def test_names_are_escaped_and_wide_parts_scroll_on_a_phone():
    html = page(report(use("<script>x", 8, 0.4)))
    assert "<script>" not in html
    assert '<meta name="viewport"' in html
    assert html.count('<div class="scroll">') == html.count("<svg") + html.count("<table")


def test_a_late_plan_gets_no_advice_to_give_gpus_back():
    late = frozenset({("kubernetes", "", "nlp", "half")})
    text = words(page(replace(report(HALF, IDLE), late=late)))
    assert "Give it 4 GPUs" not in text
    assert "Left out, since their plans will miss the deadline: half (busy 40%)" in text
    assert "336 GPU-h, $672, could have been saved" in text
