"""A faulty comment is refused at its submit; no job is held or sized for it."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.slurm.submit.thread_pool import ThreadPool

from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.submit.plan_files import read_small
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, SizingVerdict
from rightsizer_slurm.submit.server import Server
from rightsizer_slurm.submit.ticket_store import TicketStore
from rightsizer_slurm.submit.validation import Validator

PLAN = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: file}
spec:
  model: {name: gpt2}
  workload: {tokens: 1B}
"""

PATIENT = Validator(wait_s=60)
"""On a machine that does much else."""


def responses(
    tmp_path: Path,
    *comments: str,
    validator: Validator | None = None,
    cluster: SlurmCluster | None = SlurmCluster(),  # noqa: B008 (a frozen value)
) -> list[SizingResponse]:
    """The responses at the shipped settings, where no submit waits for a size."""

    async def main() -> list[SizingResponse]:
        state = TicketStore(tmp_path / "state.db")
        trusted = frozenset({os.getuid()})
        pool = ThreadPool(unsized)
        server = Server(site=SiteConfig(), state=state, trusted=trusted, pool=pool, validator=validator)
        if cluster is not None:
            server.update(cluster)
        asked = [SizingRequest(comment=comment, uid=os.getuid()) for comment in comments]
        found = [await server.respond(request) for request in asked]
        held = [one for one in found if one.verdict is SizingVerdict.HOLD]
        assert len(state.tickets()) == len(held)
        state.close()
        return found

    return asyncio.run(main())


def unsized(_: object) -> SizingResponse:
    return SizingResponse(verdict=SizingVerdict.KEEP, say="too late")


WRONG = [
    ("model=gpt2 tokens=10Q", "tokens: '10Q': write tokens as 100B"),
    ("model=gpt2 tokens=-1", "tokens: '-1'"),
    ("model=gpt2 tokens=1B deadline=yesterday", "deadline: 'yesterday': write a duration as 72h"),
    ("model=gpt2 tokens=1B deadline=0h", "deadline: '0h'"),
    ("model=gpt2 tokens=1B finish-by=2020-01-01T00:00:00Z", "finish-by: '2020-01-01T00:00:00Z': is past"),
    ("model=lama-9000 tokens=1B", "model: 'lama-9000': unknown (all: `rightsizer models`"),
    ("model=llama-3.1-9b tokens=1B", "model: 'llama-3.1-9b': unknown; did you mean "),
    ("model=" + "llama" * 50 + " tokens=1B", "model: 'llamallama"),
    ("model=gpt2 tokens=1B gpu=H1000", "gpu: 'H1000': unknown; did you mean H100-SXM5-80GB"),
    ("model=gpt2 tokens=1B method=loar", "method: 'loar': must be one of"),
    ("model=gpt2 tokens=1B framework=megatrn", "framework: 'megatrn': unknown; did you mean megatron"),
    ("model=gpt2 tokens=1B max=-3", "max: -3: must be greater"),
    ("model=gpt2 tokens=1B min=8 max=4", ""),
    ("modle=gpt2 tokens=1B", "modle: 'gpt2': unknown key; did you mean model?"),
    ("model=gpt2", "tokens: is missing"),
    ("tokens=1B", "model: is missing"),
    ("", "comment: "),
    ("plan=plan.yaml", "plan: 'plan.yaml': must be an absolute path"),
    ("plan=/tmp/../etc/plan.yaml", "must be an absolute path without .."),
    ("plan=~/plan.yaml", "must be an absolute path"),
    ("plan=", ""),
    ("plan=/no/such/file.yaml", "plan: '/no/such/file.yaml': cannot be read by the daemon: No such file"),
    ("plan=/", "must be a regular file that you own"),
    ("plan=/dev/null", "must be a regular file that you own"),
    ("plan=/dev/zero", "must be a regular file that you own"),
    ("plan=/proc/self/mem", ""),
    ("plan=https://example.com/plan.yaml", "must be an absolute path"),
    ("plan=/" + "x" * 300, "cannot be read by the daemon: File name too long"),
]


@pytest.mark.parametrize("cluster", [SlurmCluster(), None], ids=["known", "not yet read"])
def test_a_wrong_comment_is_refused_at_its_submit(tmp_path: Path, cluster: SlurmCluster | None) -> None:
    comments = [f"rightsizer: {words}" for words, _ in WRONG]
    found = responses(tmp_path, *comments, cluster=cluster, validator=PATIENT)
    for response, (words, said) in zip(found, WRONG, strict=True):
        assert (response.verdict, response.code) == (SizingVerdict.REFUSE, "comment"), (words, response.say)
        assert said in response.say, words


FILES: dict[str, bytes] = {
    "empty": b"",
    "no YAML": b"{:",
    "text": b"model",
    "list": b"- model\n",
    "binary": bytes(range(256)),
    "UTF-16": PLAN.encode("utf-16"),
    "other kind": PLAN.replace("TrainingPlan", "Pod").encode(),
    "other version": PLAN.replace("v1alpha1", "v9").encode(),
    "no spec": PLAN.partition("spec:")[0].encode(),
    "unknown field": f"{PLAN}  modle: x\n".encode(),
    "unknown model": PLAN.replace("gpt2", "gpt2000").encode(),
    "wrong tokens": PLAN.replace("1B", "10Q").encode(),
    "deep": b"[" * 5000,
    "aliases": b"a: &a [x, x]\n" + b"".join(b"b%d: &b%d [*a, *a]\n" % (n, n) for n in range(90)),
    "too large": b"#" * 600_000,
}


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_plan_file_is_refused_at_its_submit(tmp_path: Path, name: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(FILES[name])
    (response,) = responses(tmp_path, f"rightsizer: plan={path}", validator=PATIENT)
    assert (response.verdict, response.code) == (SizingVerdict.REFUSE, "comment"), response.say


@pytest.mark.parametrize("place", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_a_path_that_is_no_file_is_refused_at_once(tmp_path: Path, place: Callable[[Path], None]) -> None:
    place(tmp_path / "plan.yaml")
    (response,) = responses(tmp_path, f"rightsizer: plan={tmp_path}/plan.yaml", validator=PATIENT)
    assert "must be a regular file that you own" in response.say


def test_what_may_be_right_is_held(tmp_path: Path) -> None:
    (tmp_path / "right.yaml").write_text(PLAN)
    (tmp_path / "large.yaml").write_text(PLAN + "#" * 20_000)
    plans = [f"rightsizer: plan={tmp_path}/{name}.yaml" for name in ("right", "large")]
    found = responses(tmp_path, "rightsizer: model=gpt2 tokens=1B", *plans)
    assert [one.verdict for one in found] == [SizingVerdict.HOLD] * 3


def test_a_file_system_that_hangs_delays_no_submit(tmp_path: Path) -> None:
    ended = threading.Event()

    def hangs(path: str, uid: int) -> None:
        ended.wait(60)

    validator = Validator(hangs)
    comments = [f"rightsizer: plan=/nfs/{number}" for number in range(20)]
    found = responses(tmp_path, *comments, "rightsizer: model=gpt2 tokens=10Q", validator=validator)
    ended.set()
    assert [one.verdict for one in found] == [*[SizingVerdict.HOLD] * 20, SizingVerdict.REFUSE]


def test_files_are_read_again_after_those_that_hung(tmp_path: Path) -> None:
    async def main() -> str:
        hanging = threading.Event()
        validator = Validator(lambda path, uid: hanging.wait(60) and read_small(path, uid))
        asked = SizingRequest(comment="rightsizer: plan=/no/such/file", uid=os.getuid())
        assert [await validator.error(asked) for _ in range(3)] == [""] * 3
        hanging.set()
        while not (said := await validator.error(asked)):
            await asyncio.sleep(0.01)
        return said

    assert "No such file" in asyncio.run(main())
