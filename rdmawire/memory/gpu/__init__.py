"""GPUs as an adapter meets them: memory of their own, seen through an aperture on the bus.

A kernel on the GPU reads and writes GPU addresses. Everybody else uses the bus addresses of
BAR1, behind which pages appear while they are pinned.
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
