"""Stands in for the accelerator that torchtitan needs: the CPU, with torch.cuda's functions that it calls.

torchtitan 0.3 takes the device "cuda" where torch has no accelerator, and its attention kernels have no
backward on a CPU. The tests put this folder on PYTHONPATH. All else of torchtitan runs as it is, uncompiled.
"""

import os
from types import ModuleType, SimpleNamespace
from typing import Any

from rightsizer_launch.stacks.import_hook import after_import


def _name_the_cpu(utils: ModuleType) -> None:
    vars(utils)["_get_available_device_type"] = lambda: "cpu"


def _complete(cpu: ModuleType) -> None:
    vars(cpu).update(
        current_device=lambda: 0,
        empty_cache=lambda: None,
        get_device_name=lambda _device=None: "cpu",
        get_device_properties=lambda _device=None: SimpleNamespace(total_memory=2**30),
        memory_stats=lambda _device=None: {},
        reset_peak_memory_stats=lambda: None,
    )


def _attend_without_kernel(attention: ModuleType) -> None:
    """Causal attention: the example's sequences are one document each."""
    from torch.nn.functional import scaled_dot_product_attention  # noqa: PLC0415 -- not before torch is

    def attend(*qkv: Any, scale: float | None, enable_gqa: bool, **_more: Any) -> tuple[Any, None]:
        return scaled_dot_product_attention(*qkv, is_causal=True, scale=scale, enable_gqa=enable_gqa), None

    attention.FlexAttention._compiled_flex_attn = attend


os.environ["TORCHDYNAMO_DISABLE"] = "1"
after_import("torch._utils", _name_the_cpu)
after_import("torch.cpu", _complete)
after_import("torchtitan.models.common.attention", _attend_without_kernel)
