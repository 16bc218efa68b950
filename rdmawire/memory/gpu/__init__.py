"""GPUs as seen by an adapter: GPU memory, accessed through an aperture on the bus.

A kernel on the GPU uses GPU addresses. Adapters and processors use the bus addresses of
BAR1, where pages appear while they are pinned.
"""

from rdmawire.memory.gpu.device import A100, H200, T4, Gpu, GpuProfile
from rdmawire.memory.gpu.driver import GpuDriver, export_dmabuf
from rdmawire.memory.gpu.gdrcopy import Gdr
from rdmawire.memory.gpu.peermem import Peermem, reg_bounce_mr

__all__ = [
    "A100",
    "H200",
    "T4",
    "Gdr",
    "Gpu",
    "GpuDriver",
    "GpuProfile",
    "Peermem",
    "export_dmabuf",
    "reg_bounce_mr",
]
