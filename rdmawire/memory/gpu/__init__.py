"""GPUs as an adapter meets them: memory of their own, seen through an aperture on the bus.

A kernel on the GPU reads and writes GPU addresses. Everybody else uses the bus addresses of
BAR1, behind which pages appear while they are pinned.
"""
