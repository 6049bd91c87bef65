"""Progress from the lines that a stack logs, where it has no hook: step, tokens and loss.

The formats are data, in the form that each stack's own logger writes. A line is hostile until parsed: it is
cut, every repetition of a pattern is bounded, and a number that is not finite is no number. Log lines alone
neither save before a stop nor resume; the script's own options do.
"""

import math
import os
import re
import sys
from collections.abc import Mapping
from typing import TextIO

from rightsizer_engine.values import immutable
from rightsizer_launch.worker import agent, job_environment
from rightsizer_launch.worker.process_end import at_script_end

_LONGEST_LINE = 4096
_NUMBER = r"[-+]?\d{1,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?"
_MOST_STEPS = 10**12


@immutable
class Progress:
    """The contents of one line: optimizer steps done, sequences consumed since the beginning, the loss."""

    step: int
    sequences: int | None = None
    loss: float | None = None


@immutable
class LogFormat:
    """A stack's line of a step: patterns with one group each.

    `counts_from` is the number of the first step. `last_rank`: the last rank prints it, else the first one.
    """

    step: str
    loss: str
    sequences: str = ""
    counts_from: int = 1
    last_rank: bool = False

    def parse(self, line: str) -> Progress | None:
        """The progress that a line reports; None if it reports none."""
        line = line[:_LONGEST_LINE]
        step = _number(self.step, line)
        if step is None or not 0 <= step < _MOST_STEPS:
            return None
        sequences = _number(self.sequences, line) if self.sequences else None
        return Progress(
            step=int(step) + 1 - self.counts_from,
            sequences=None if sequences is None else int(sequences),
            loss=_number(self.loss, line),
        )


def _number(pattern: str, line: str) -> float | None:
    found = re.search(pattern, line)
    number = float(found[1]) if found else math.nan
    return number if math.isfinite(number) else None


FORMATS: Mapping[str, LogFormat] = {
    "megatron": LogFormat(
        step=r"\biteration {1,12}(\d{1,12})/ {0,12}\d{1,12} \| (?:consumed samples|elapsed time)",
        loss=rf"\| lm loss: ({_NUMBER})",
        sequences=r"\| consumed samples: {1,12}(\d{1,15})",
        last_rank=True,
    ),
    "nemo": LogFormat(
        step=r"\bTraining epoch \d{1,9}, iteration \d{1,12}/\d{1,12} \|.{0,999}\| global_step: (\d{1,12})",
        loss=rf"\| reduced_train_loss: ({_NUMBER})",
        sequences=r"\| consumed_samples: (\d{1,15})",
        counts_from=0,
    ),
    "nanotron": LogFormat(
        step=r"\biteration: (\d{1,12}) / \d{1,12} \|",
        loss=rf"\| lm_loss: ({_NUMBER})",
    ),
    "torchtune": LogFormat(
        step=r"^Step (\d{1,12}) \|",
        loss=rf"\bloss:({_NUMBER})",
    ),
}
"""As Megatron-LM, NeMo 2.0's progress printer, nanotron's logger and torchtune's StdoutLogger write them."""


class LogReader:
    """Collects what a process prints into lines, and reports the steps in them."""

    def __init__(self, form: LogFormat) -> None:
        self._form = form
        self._line = ""
        self._at: Progress | None = None

    def feed(self, text: str) -> None:
        """Take printed text; a line may come in parts, and its end beyond the longest line is dropped."""
        *lines, rest = re.split(r"[\r\n]", text)
        for line in lines:
            self._read(self._line + line)
            self._line = ""
        self._line = (self._line + rest)[:_LONGEST_LINE]

    def _read(self, line: str) -> None:
        now = self._form.parse(line)
        if now is None:
            return
        before, self._at = self._at, now
        if before is None or now.step < before.step:
            agent.start(step=now.step, tokens=_tokens(now), reporter=self, agrees=False)
        elif now.step > before.step and agent.reports(self):
            steps = now.step - before.step
            tokens = max(0.0, _tokens(now) - _tokens(before)) / steps
            agent.step(tokens=tokens, loss=now.loss, steps=steps)

    def finish(self) -> None:
        """Report the end of the training, if its steps were reported here."""
        if agent.reports(self):
            agent.finish()


def _tokens(progress: Progress) -> float:
    """Tokens since the beginning: as the line counts sequences, else the plan's batch for each step."""
    layout = job_environment.layout()
    counted = progress.sequences
    sequences = progress.step * layout.global_batch_sequences if counted is None else counted
    return float(sequences) * layout.sequence_tokens


class _Tee:
    """A stream that a reader sees too."""

    def __init__(self, stream: TextIO, reader: LogReader) -> None:
        self._stream, self._reader = stream, reader

    def write(self, text: str) -> int:
        written = self._stream.write(text)
        self._reader.feed(text)
        return written

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def observe_lines(form: LogFormat) -> None:
    """Read what this process prints from now on, in the rank that prints its steps."""
    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if not job_environment.active() or rank != (ranks - 1 if form.last_rank else 0):
        return
    out, err = LogReader(form), LogReader(form)
    vars(sys).update(stdout=_Tee(sys.stdout, out), stderr=_Tee(sys.stderr, err))
    at_script_end(out.finish)
    at_script_end(err.finish)
