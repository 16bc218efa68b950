"""States and types of queue pairs, with libibverbs' numbers. IBA 10.3.1."""

from enum import IntEnum


class QPState(IntEnum):
    """What a queue pair does with work and packets: the numbers of ibv_qp_state."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class QPType(IntEnum):
    """The transport service: the numbers of ibv_qp_type, where XRC_INI is called XRC_SEND."""

    RC = 2
    UC = 3
    UD = 4
    RAW_PACKET = 8
    XRC_INI = 9
    XRC_TGT = 10


class MigrationState(IntEnum):
    """Whether the alternate path is in use, or may be: the numbers of ibv_mig_state. IBA 17.2.8."""

    MIGRATED = 0
    REARM = 1
    ARMED = 2
