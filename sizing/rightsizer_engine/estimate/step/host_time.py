"""Host time of a layer (Python, kernel launches), and the GPU's wait for it."""

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array, Columns, cached_by_columns, text_matches
from rightsizer_engine.domain.layout import Sharding
from rightsizer_engine.domain.workload import Method
from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.estimate.work import adapts, frozen

HOST_CLASSES = ("megatron", "core", "fsdp1", "fsdp2", "trainer")
"""Framework generations (`Framework.time_class`) that share host time and element-wise kernels."""
_CORE_YEAR = 2024  # Megatron-Core's first stable release
_TRAINER = HOST_CLASSES.index("trainer")


def host_class(cases: Cases) -> Array:
    """Index into HOST_CLASSES. An unknown framework counts as the Megatron of its year."""
    core, code = HOST_CLASSES.index("core"), _time_code(cases.framework)
    year = cases.workload.library_year
    old = (cases.framework.known == 0) & (year > 0) & (year < _CORE_YEAR) & (code == core)
    return np.where(old, HOST_CLASSES.index("megatron"), code)


@cached_by_columns
def _time_code(framework: Columns) -> Array:
    """Index into HOST_CLASSES of the framework's own class."""
    names, inverse = np.unique(np.atleast_1d(framework.time_class), return_inverse=True)
    core = HOST_CLASSES.index("core")
    table = np.asarray([HOST_CLASSES.index(n) if n in HOST_CLASSES else core for n in names.tolist()])
    return np.asarray(table[inverse.reshape(np.shape(framework.time_class))])


def launches_s(cases: Cases, p: Parameters, recomputed: Array) -> tuple[Array, Array]:
    """CPU seconds to launch a layer: forward, and backward with its recomputed share."""
    code = host_class(cases)
    once = p.keyed("host_layer_s", HOST_CLASSES)[code] + _modules_s(cases, p)
    forward = once * (1 + p.host_tensor_growth * np.log2(cases.layout.tp))
    return forward, forward * (p.host_backward + recomputed)


def _modules_s(cases: Cases, p: Parameters) -> Array:
    """Host seconds launched module by module: adapters, unpacking of weights, DeepSpeed's hooks.

    An adapted matrix launches casts, dropout, two products, a scale and a sum; a quantised one its unpacking.
    ZeRO-3's hooks gather and release the weights of every module that has any: the matrices and two norms of
    a layer, and two factors of each adapter.
    """
    profile = cases.framework
    matrices = 4.0 + np.where(cases.architecture.gated_mlp, 3.0, 2.0)
    adapted = np.where(frozen(cases), np.where(adapts(cases.workload, "all"), matrices, 4.0), 0.0)
    quantised = np.where(cases.workload.method == Method.QLORA, matrices, 0.0)
    hooked = (profile.family == "deepspeed") & (cases.layout.sharding >= Sharding.ZERO3)
    hooked = hooked & (host_class(cases) == _TRAINER)
    each = np.where(profile.fuses_adapters, 0.0, p.host_adapter_s)
    hooks = np.where(hooked, (matrices + 2.0 + 2.0 * adapted) * p.host_hook_s, 0.0)
    return np.asarray(adapted * each + quantised * p.host_quantised_s + hooks)


def expert_wait_s(cases: Cases, dense_share: Array, p: Parameters) -> Array:
    """Seconds that the GPU idles while the host reads each expert's token count before its matmuls.

    Grace hosts launch this part as CUDA graphs (Megatron-Bridge's recipes), or hardly wait.
    """
    waits = np.where(superchip(cases), 0.0, p.expert_wait_s)
    return np.asarray(_sparse_share(cases, dense_share) * waits)


def _sparse_share(cases: Cases, dense_share: Array) -> Array:
    """The share of layers with experts."""
    return np.where(cases.architecture.experts > 0, 1.0 - dense_share, 0.0)


def superchip(cases: Cases) -> Array:
    """True if the host is a Grace CPU on NVLink-C2C."""
    return text_matches(cases.gpu.name, lambda name: name.startswith(("GB", "GH")))
