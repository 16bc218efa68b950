"""Tokens of a mixture of experts: dispatch and combine, as DeepEP's low-latency kernels do them.

It needs NumPy. ::

    from rdmawire.gpudirect.deepep import DeepEpSpec, deepep

    report = deepep(DeepEpSpec(hosts=2, gpus=2, tokens=8, experts=8, topk=2, hidden=256))
"""

from rdmawire.gpudirect.deepep.low_latency import (
    MAX_TOPK,
    MAX_WORK,
    DeepEp,
    DeepEpReport,
    DeepEpSpec,
    Routing,
    deepep,
    expert_result,
    from_bf16,
    to_bf16,
)

__all__ = [
    "MAX_TOPK",
    "MAX_WORK",
    "DeepEp",
    "DeepEpReport",
    "DeepEpSpec",
    "Routing",
    "deepep",
    "expert_result",
    "from_bf16",
    "to_bf16",
]
