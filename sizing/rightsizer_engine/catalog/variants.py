"""Read the names of fine-tuned and quantised variants as the catalog's model with the same dimensions.

A Hub id is an owner, a base model and words: `unsloth/Llama-3.2-3B-Instruct-bnb-4bit`. Words are left out
step by step, in the name and in the catalog's names alike, until one model is left: first those of a
quantisation, then those of a fine-tuning, dates, and versions. A fine-tuned model may also put words of its
own around the base's name, if that holds a size (`Hermes-3-Llama-3.1-8B`), or before its size
(`Llama-3.1-Tulu-3-8B`). Words of another network (`VL`, `Omni`, `EAGLE`) are never left out.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from rightsizer_engine.catalog.naming import normal
from rightsizer_engine.values import immutable

_QUANTISED = re.compile(
    r"awq|gptq|gguf|exl\d|bnb|nf4|hqq|aqlm|mlx|qat|marlin|dwq|autoround|quantized(\..+)?|[2-8](\.\d+)?-?bits?"
    r"|(mx|nv)?fp[48]|int[48]|(w\d+a\d+)(\..+)?|i?q\d|g\d+|\d+g|dynamic|ud|imatrix|i1"
)
_MARKS = re.compile(
    r"awq|gptq|gguf|exl\d|bnb|nf4|hqq|aqlm|quantized.*|[2-8]-?bits?|(mx|nv)?fp[48]|int[48]|w\d+a\d+.*"
)
"""Words that say by themselves that the weights are quantised."""
_TUNED = frozenset(
    {
        *("instruct", "base", "it", "pt", "chat", "hf", "thinking", "think", "reasoning", "rl", "sft", "dpo"),
        *("grpo", "orpo", "simpo", "lora", "preview", "bf16", "fp16", "text", "abliterated", "uncensored"),
        *("unsloth", "latest", "meta", "beta", "1m", "32k", "128k", "4k", "8k", "final", "deduped"),
    }
)
_OTHER = re.compile(
    r"vl\d?|vlm|omni|audio|vision|multimodal|mm|tts|asr|speech|ocr|video|voice|moe|mamba|rwkv|hybrid"
    r"|instructblip|blip\d?|llava.*|minigpt\d?|cogvlm\d?|moondream\d?|internvl.*|.*eagle\d?|medusa|speculator.*"
    r"|h|draft|dflash|mtp|pruned|depth|width|minitron|merge|franken.*|adapter|\d+x\d+b?"
)
"""Words of a network of other dimensions: towers beside the base, drafts of it, what is left of it."""
_GGUF = re.compile(r"\b(i?q\d)(_[a-z0-9]+)+")
_DATE = re.compile(r"\d{4}|\d{6}|\d{8}")
_VERSION = re.compile(r"v\d+(\.\d+)*")
_SIZE = re.compile(r"(\d+x)?\d+(\.\d+)?[bm]|\d+b\d|a\d+b|\d+b-a\d+b")
_PLAIN_SIZE = re.compile(r"\d+(\.\d+)?[bm]")
_MOST_WORDS = 16

_Drops = Callable[[str], bool]


def _quantised(word: str) -> bool:
    return bool(_QUANTISED.fullmatch(word))


def _tuned(word: str) -> bool:
    return _quantised(word) or word in _TUNED


def _dated(word: str) -> bool:
    return _tuned(word) or bool(_DATE.fullmatch(word))


def _versioned(word: str) -> bool:
    return _dated(word) or bool(_VERSION.fullmatch(word))


_STEPS: tuple[_Drops, ...] = (_quantised, _tuned, _dated, _versioned)

VariantIndex = tuple[Mapping[str, tuple[str, ...]], ...]
"""For each step: the normal form of the words that are left -> the models."""


@immutable
class Variant:
    """The models that a name may mean, and its reading; none: an unknown name."""

    models: tuple[str, ...] = ()
    quantised: bool = False
    fine_tuned: bool = False


def index(names: Iterable[tuple[str, str]]) -> VariantIndex:
    """The index of (name, model) pairs."""
    steps: list[dict[str, tuple[str, ...]]] = [{} for _ in _STEPS]
    for name, model in names:
        words = _words(name)
        for step, drops in zip(steps, _STEPS, strict=True):
            key = _key(words, drops)
            if model not in step.get(key, ()):
                step[key] = (*step.get(key, ()), model)
    return tuple(steps)


def find(name: str, known: VariantIndex) -> Variant:
    """The models of that name as a variant."""
    words = _words(name)[:_MOST_WORDS]
    quantised = any(_MARKS.fullmatch(word) for word in words)
    for step, drops in zip(known, _STEPS, strict=True):
        models = step.get(_key(words, drops), ())
        if models:
            return Variant(models=models, quantised=quantised)
    kept = [word for word in words if not _tuned(word)]
    for part in _parts(kept):
        others = [word for word in kept if word not in part]
        if not any(_SIZE.fullmatch(word) for word in part) or any(map(_OTHER.fullmatch, others)):
            continue
        models = known[1].get(normal("-".join(part)), ()) or known[-1].get(normal("-".join(part)), ())[:1]
        if len(models) == 1:
            return Variant(models=models, quantised=quantised, fine_tuned=True)
    return Variant()


def _parts(words: list[str]) -> Iterator[list[str]]:
    """Words in a row, the longest first; then words in a row and the size that follows words of no size."""
    count = len(words)
    for length in range(count - 1, 0, -1):
        for start in range(count - length + 1):
            yield words[start : start + length]
    sizes = [at for at, word in enumerate(words) if _SIZE.fullmatch(word)]
    if len(sizes) == 1:
        for length in range(sizes[0] - 1, 0, -1):
            for start in range(sizes[0] - length):
                yield [*words[start : start + length], words[sizes[0]]]


def sizes(name: str) -> frozenset[str]:
    """The sizes that are words of a name: `gemma-31b` states 31b, though it is spelt like Gemma 3 1b."""
    return frozenset(word for word in re.split(r"[-_\s()/|]+", name.lower()) if _PLAIN_SIZE.fullmatch(word))


def _words(name: str) -> list[str]:
    """A name's words without its owner, in lower case."""
    bare = _GGUF.sub(r"\1", name.rpartition("/")[2].lower())
    return [word for word in re.split(r"[-_\s]+", bare) if word]


def _key(words: list[str], drops: _Drops) -> str:
    """The remaining words; empty words never match."""
    return normal("-".join(word for word in words if not drops(word))) or "?"
