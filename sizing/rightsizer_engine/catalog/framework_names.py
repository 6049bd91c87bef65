"""Names of frameworks in use -> the engine's profile: launch names, everyday names and profiles."""

import json
from collections.abc import Mapping
from functools import cache

from rightsizer_engine import packaged
from rightsizer_engine.catalog.naming import Index, Spellings, build_index, lookup, nearest, normal
from rightsizer_engine.domain.framework import Framework, framework, frameworks
from rightsizer_engine.domain.layout import Sharding
from rightsizer_engine.errors import UnknownNameError

_WITH_ADAPTERS = {"hf-trainer": "peft", "unknown": "unknown-adapters"}
"""Profiles that train adapters with another library than whole models."""


def framework_named(name: str, *, adapters: bool = False) -> Framework:
    """The profile that people mean by `name`, whatever its case, spaces and punctuation."""
    found = lookup(_index(), name)
    if not found:
        near = nearest(_index(), name)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        remedy = f"unknown; {hint}(all: `rightsizer frameworks`; custom: any script)"
        raise UnknownNameError("framework", value=name, candidates=near, remedy=remedy)
    (profile,) = found
    return framework(_WITH_ADAPTERS.get(profile, profile) if adapters else profile)


def sharding_named(name: str) -> Sharding | None:
    """The ZeRO stage that a framework's name states, as in deepspeed-zero3; None if it leaves it open."""
    stages = {f"zero{stage.value}": stage for stage in (Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3)}
    return stages.get(normal(name).removeprefix("deepspeed"))


def also_called(profile: str) -> tuple[str, ...]:
    """The names that people use for a profile, the one of plans first."""
    return _names().get(profile, ())


@cache
def _names() -> Mapping[str, tuple[str, ...]]:
    data = json.loads(packaged.text("frameworks.json"))
    names = {profile: tuple(said) for profile, said in data["names"].items()}
    for launch, profile in data["launch"].items():
        if launch != profile:
            names[profile] = (launch, *names.get(profile, ()))
    return names


@cache
def _index() -> Index:
    profiles = [profile.name for profile in frameworks()]
    return build_index(Spellings(name=p, exact=(p,), defaults=also_called(p)) for p in profiles)
