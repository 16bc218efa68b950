"""Times of NCCL that were measured on a server with four H200, in us.

By operation and bytes: over NVLink, through host memory, over TCP on loopback. Four ranks, through
PyTorch, driver 580.159.04.
"""

from typing import Final

MEASURED: Final[dict[tuple[str, int], tuple[float, float, float]]] = {
    ("allreduce", 8): (54.8, 38.5, 55.9),
    ("allreduce", 1024): (37.9, 37.5, 93.8),
    ("allreduce", 8192): (36.5, 55.0, 127.4),
    ("allreduce", 65536): (35.9, 37.5, 295.3),
    ("allreduce", 1048576): (53.9, 99.0, 1075.6),
    ("allreduce", 16777216): (101.2, 1083.0, 11272.1),
    ("allreduce", 268435456): (1191.2, 15114.7, 140731.4),
    ("sendrecv", 8): (47.0, 41.3, 39.4),
    ("sendrecv", 1024): (45.2, 35.9, 30.7),
    ("sendrecv", 8192): (43.2, 36.4, 29.9),
    ("sendrecv", 65536): (45.7, 42.8, 36.9),
    ("sendrecv", 1048576): (33.3, 43.4, 291.5),
    ("sendrecv", 16777216): (59.7, 462.4, 3967.3),
    ("sendrecv", 268435456): (749.6, 7341.5, 77624.4),
    ("alltoall", 8): (41.9, 39.6, 62.7),
    ("alltoall", 1024): (48.8, 37.1, 71.5),
    ("alltoall", 8192): (42.1, 39.7, 67.5),
    ("alltoall", 65536): (42.2, 58.9, 94.0),
    ("alltoall", 1048576): (47.5, 280.2, 551.1),
    ("alltoall", 16777216): (72.5, 469.5, 4670.9),
    ("alltoall", 268435456): (680.1, 6651.1, 89262.1),
}
