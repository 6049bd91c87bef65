"""Assumed values for a row's missing ones: the value assumed, and a sentence that says so ("": stated)."""

import difflib
import math
import re
from collections.abc import Mapping

from rightsizer_engine.catalog import lookup
from rightsizer_engine.catalog.naming import normal
from rightsizer_engine.catalog.recipes import recipe
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.domain.hardware import Gpu
from rightsizer_engine.domain.workload import Method
from rightsizer_engine.errors import InputError, UnsupportedError
from rightsizer_engine.published import fields

Row = Mapping[str, str]

_USUAL_GPUS = ((2020.5, "V100-SXM2-32GB"), (2023.0, "A100-SXM4-80GB"), (math.inf, "H100-SXM5-80GB"))
"""The part of most published runs until a year."""
_MEMORY = re.compile(r"[-_ ]?\d{1,4} ?GB\b", re.IGNORECASE)
_LIKENESS = 0.8
"""difflib's ratio from which an unknown part counts as another of the same series (RTX 3080: RTX 3090)."""
_PRETRAIN_TOKENS, _TUNE_TOKENS = 4096, 2048
"""The median sequences of the published rows of each method."""


def gpu(name: str, year: float) -> tuple[Gpu, str]:
    """The catalog's GPU of that name; an incomplete name ("A100-80GB") means the SXM part if there is one."""
    if not name:
        usual = next(part for until, part in _USUAL_GPUS if 0 < year < until or math.isinf(until))
        return lookup.gpu(usual), f"gpu not stated: {usual}"
    try:
        return lookup.gpu(name), ""
    except InputError as unknown:
        wanted = _words(name)
        fits = [g for g in lookup.gpus() if wanted <= _words(" ".join((g.name, *g.aliases)))]
        if fits:
            return min(fits, key=lambda g: ("sxm" not in g.name.lower(), g.memory_bytes, g.name)), ""
        near = _alike(name)
        if near is None:
            raise UnsupportedError(f"gpu: {name!r} is not in the catalog, nor a part like it") from unknown
        return near, f"gpu {name[:40]!r} not in the catalog: {near.name}"


def _alike(name: str) -> Gpu | None:
    """The GPU with the most similar name."""
    spelled = {normal(alias): g for g in lookup.gpus() for alias in (g.name, *g.aliases)}
    bare = normal(_MEMORY.sub("", name[:100]))
    close = difflib.get_close_matches(bare, list(spelled), n=1, cutoff=_LIKENESS)
    return spelled[close[0]] if close else None


def _words(name: str) -> frozenset[str]:
    """The words of a part's name without the vendor's."""
    words = name.lower().replace("-", " ").replace("_", " ").split()
    return frozenset(words) - {"nvidia", "amd", "tesla", "geforce", "sxm", "gpu"}


def sequence_tokens(row: Row, profile: Framework, shape: Architecture) -> tuple[int, str]:
    """Tokens of a sequence: the row's, else the model's own recipe's, the framework's default, the usual."""
    stated = fields.count(row, "seq_len")
    if stated or shape.fixed_tokens:
        return stated or shape.fixed_tokens, ""
    pretraining = fields.method(fields.text(row, "method")) is Method.PRETRAIN
    own = recipe(shape.name) if pretraining else None
    usual = _PRETRAIN_TOKENS if pretraining else profile.sequence_tokens or _TUNE_TOKENS
    tokens = own.sequence_tokens if own else usual
    tokens = min(tokens, shape.max_sequence or tokens)
    return tokens, f"seq_len not stated: {tokens:,} tokens"


def batch(row: Row) -> str:
    """The assumed batch of a row without one."""
    if fields.count(row, "micro_batch") or fields.count(row, "global_batch"):
        return ""
    return "batch not stated: one sequence a GPU"
