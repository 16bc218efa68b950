"""Copies measured on servers with H200, of two runs with different software.

Times are us. The second run has medians; its bounce has a copy within the host's memory.
"""

from rdmawire.topology.cost import CopyKind

KINDS_1 = (
    CopyKind.PINNED,
    CopyKind.PINNED,
    CopyKind.PAGEABLE,
    CopyKind.DEVICE,
    CopyKind.PEER,
    CopyKind.BOUNCE,
    CopyKind.PINNED_AND_SYNC,
)
RUN_1 = {
    8: (4.8, 3.6, 11.7, 6.7, 13.7, 19.2, 10.0),
    4096: (4.1, 3.6, 12.6, 6.6, 15.0, 21.0, 10.3),
    65_536: (6.1, 5.5, 21.0, 6.6, 13.4, 22.9, 11.0),
    1_048_576: (27.1, 22.0, 119.4, 9.1, 18.1, 60.0, 29.4),
    67_108_864: (1231.8, 1233.5, 5299.4, 39.0, 197.3, 2507.6, 1257.7),
    1_073_741_824: (19375.7, 19420.1, 73882.9, 507.0, 2728.8, 38860.6, 19459.7),
}
KINDS_2 = (
    CopyKind.PINNED,
    CopyKind.PINNED,
    CopyKind.PAGEABLE,
    CopyKind.BOUNCE_PAGEABLE,
    CopyKind.PEER,
)
RUN_2 = {
    8: (7.1, 6.8, 8.7, 14.1, 11.0),
    4096: (7.1, 7.9, 9.2, 15.6, 11.2),
    262_144: (11.9, 11.8, 31.9, 46.1, 12.1),
    2_097_152: (45.5, 45.3, 157, 245, 16.7),
    134_217_728: (2432, 2427, 7665, 22181, 351),
}
