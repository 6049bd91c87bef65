"""A running job that somebody else launched, as an executor finds it."""

from rightsizer_engine.values import immutable


@immutable
class ExistingJob:
    """`gpu` is the engine's name, `plan` the words of its comment; empty if unknown."""

    name: str
    gpus: int
    gpu: str
    gpus_per_node: int
    started_s: float
    plan: str = ""
