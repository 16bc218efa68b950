"""Codes of communication management: messages, reasons, statuses. IBA 12.6 to 12.11."""

from enum import IntEnum


class CMAttribute(IntEnum):
    """Attribute ids of the messages. IBA 12.6.1."""

    CLASS_PORT_INFO = 0x0001
    REQ = 0x0010
    MRA = 0x0011
    REJ = 0x0012
    REP = 0x0013
    RTU = 0x0014
    DREQ = 0x0015
    DREP = 0x0016
    SIDR_REQ = 0x0017
    SIDR_REP = 0x0018
    LAP = 0x0019
    APR = 0x001A
    SAP = 0x001B
    SPR = 0x001C


class TransportService(IntEnum):
    """Transport service of a connection. IBA 12.7.13."""

    RC = 0
    UC = 1
    RD = 2
    EXTENDED = 3


class ExtendedTransport(IntEnum):
    """Extended transport type, used if the transport service is extended. IBA A14."""

    XRC = 1


class Message(IntEnum):
    """The message that an MRA or REJ answers. IBA 12.7.8."""

    REQ = 0
    REP = 1
    OTHER = 2


class FailoverAccepted(IntEnum):
    """Result for the alternate path of a REQ. IBA 12.7.22."""

    ACCEPTED = 0
    NOT_SUPPORTED = 1
    REJECTED = 2


class RejectReason(IntEnum):
    """Reasons to refuse a connection. IBA 12.6.7.2."""

    NO_QP = 1
    NO_EEC = 2
    NO_RESOURCES = 3
    TIMEOUT = 4
    UNSUPPORTED_REQUEST = 5
    INVALID_COMM_ID = 6
    INVALID_COMM_INSTANCE = 7
    INVALID_SERVICE_ID = 8
    INVALID_TRANSPORT_SERVICE_TYPE = 9
    STALE_CONNECTION = 10
    RDC_DOES_NOT_EXIST = 11
    PRIMARY_REMOTE_GID_REJECTED = 12
    PRIMARY_REMOTE_LID_REJECTED = 13
    INVALID_PRIMARY_SL = 14
    INVALID_PRIMARY_TRAFFIC_CLASS = 15
    INVALID_PRIMARY_HOP_LIMIT = 16
    INVALID_PRIMARY_PACKET_RATE = 17
    ALTERNATE_REMOTE_GID_REJECTED = 18
    ALTERNATE_REMOTE_LID_REJECTED = 19
    INVALID_ALTERNATE_SL = 20
    INVALID_ALTERNATE_TRAFFIC_CLASS = 21
    INVALID_ALTERNATE_HOP_LIMIT = 22
    INVALID_ALTERNATE_PACKET_RATE = 23
    PORT_AND_CM_REDIRECTION = 24
    PORT_REDIRECTION = 25
    INVALID_PATH_MTU = 26
    INSUFFICIENT_RESPONDER_RESOURCES = 27
    CONSUMER_REJECT = 28
    RNR_RETRY_COUNT_REJECT = 29
    DUPLICATE_LOCAL_COMM_ID = 30
    INVALID_CLASS_VERSION = 31
    INVALID_PRIMARY_FLOW_LABEL = 32
    INVALID_ALTERNATE_FLOW_LABEL = 33


class APStatus(IntEnum):
    """Status of a LAP. IBA 12.8.2."""

    LOADED = 0
    INVALID_COMM_ID = 1
    UNSUPPORTED = 2
    REJECTED = 3
    REDIRECTED = 4
    IS_CURRENT = 5
    INVALID_QPN_EECN = 6
    INVALID_LID = 7
    INVALID_GID = 8
    INVALID_FLOW_LABEL = 9
    INVALID_TRAFFIC_CLASS = 10
    INVALID_HOP_LIMIT = 11
    INVALID_PACKET_RATE = 12
    INVALID_SL = 13


class SIDRStatus(IntEnum):
    """Status of a SIDR_REQ. IBA 12.11.2."""

    SUCCESS = 0
    UNSUPPORTED_SERVICE_ID = 1
    REJECTED = 2
    NO_QP = 3
    REDIRECTED = 4
    UNSUPPORTED_VERSION = 5
