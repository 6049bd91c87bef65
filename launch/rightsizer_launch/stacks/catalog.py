"""The stacks whose scripts run unmodified, by the engine's profile of their framework. Pure data.

`hooks` maps a module of the stack to the module of this folder that observes it after its import. A stack
without hooks is read from its log lines (`log_lines`).
"""

from collections.abc import Mapping

from rightsizer_engine.catalog.framework_names import framework_named
from rightsizer_engine.catalog.naming import normal
from rightsizer_engine.values import immutable
from rightsizer_launch.argv import frameworks
from rightsizer_launch.argv.torchrun import Program


@immutable
class Stack:
    """A stack, the hooks that observe it and the engine's profiles of it.

    `in_place`: workers read their number anew at every start, so it may change without new arguments.
    `names`: what people call a stack that is a part of a profile.
    """

    name: str
    hooks: Mapping[str, str]
    profiles: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    in_place: bool = False


_STACKS = (
    Stack(
        name="transformers",
        hooks={"transformers.trainer": "transformers"},
        profiles=(
            "hf-trainer",
            "hf-liger",
            "peft",
            "trl",
            "trl-2025",
            "axolotl",
            "llama-factory",
            "unsloth",
            "ms-swift-2",
            "ms-swift-3",
        ),
        in_place=True,
    ),
    Stack(name="torchtitan", hooks={"torchtitan.trainer": "torchtitan"}, profiles=("torchtitan",)),
    Stack(name="deepspeed", hooks={"deepspeed": "deepspeed"}, profiles=("deepspeed-zero",)),
    Stack(name="megatron", hooks={}, profiles=("megatron", "megatron-core", "megatron-bridge")),
    Stack(name="nemo", hooks={}, profiles=("nemo",)),
    Stack(name="nanotron", hooks={}, profiles=("nanotron",)),
    Stack(name="torchtune", hooks={}, profiles=("torchtune",)),
    Stack(
        name="accelerate",
        hooks={"transformers.trainer": "transformers", "accelerate": "accelerate"},
        names=("accelerate",),
    ),
    Stack(
        name="lightning",
        hooks={"lightning.pytorch": "lightning", "pytorch_lightning": "lightning"},
        names=("lightning", "pytorch-lightning"),
        in_place=True,
    ),
)

OBSERVED: Mapping[str, Stack] = {stack.name: stack for stack in _STACKS}


def stack_of(framework: str) -> Stack | None:
    """The stack of a plan's `launch.framework`; None if its scripts report through the agent."""
    profile, said = framework_named(framework).name, normal(framework)
    named = (stack for stack in _STACKS if said in map(normal, stack.names))
    return next(named, None) or next((stack for stack in _STACKS if profile in stack.profiles), None)


def resizes_in_place(framework: str) -> bool:
    """Whether workers may change their number without new arguments."""
    stack = stack_of(framework)
    return frameworks.resizes_in_place(framework) if stack is None else stack.in_place


def observed(framework: str, own: Program) -> Program:
    """The program that runs a plan's own one observed; the own one if its framework is not observed."""
    stack = stack_of(framework)
    if stack is None:
        return own
    kind = ("-m",) if own.module else ()
    arguments = (stack.name, *kind, own.target, *own.arguments)
    return Program(target="rightsizer_launch.stacks.observe", arguments=arguments, module=True)
