"""NVMe over Fabrics on RDMA: private data of connections, commands, completions, their data.

Sections are those of the NVM Express Base Specification 2.0 (Base), its NVM Command Set 1.0 (NVM)
and RDMA Transport 1.0 (RDMA). Numbers are little-endian. A command capsule is a command of 64 bytes
and its data, if they are in the capsule; a response capsule is a completion of 16 bytes.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from rdmawire.wire.codec import LITTLE
from rdmawire.wire.header import Header, bits, raw
from rdmawire.wire.show import HEX, TEXT

PORT: Final = 4420
"""Port of NVMe over RDMA: IANA, nvme."""
COMMAND_SIZE: Final = 64
COMPLETION_SIZE: Final = 16
IDENTIFY_SIZE: Final = 4096
FABRICS: Final = 0x7F
"""Opcode of all Fabrics commands. Base 6.1."""
_CM, _CMD, _CQE = "nvme-rdma.cm", "nvme.cmd", "nvme.cqe"
_CONNECT, _PROPERTY = "nvme.fabrics.cmd.connect", "nvme.fabrics.cmd.prop_get_set"


class PrivateDataFormat(IntEnum):
    """Format of the private data of a connection. RDMA 3.2."""

    VERSION_0 = 0


class RejectStatus(IntEnum):
    """Why a connection is rejected. RDMA 3.2."""

    INVALID_LENGTH = 1
    INVALID_RECFMT = 2
    INVALID_QID = 3
    INVALID_HSQSIZE = 4
    INVALID_HRQSIZE = 5
    NO_RESOURCES = 6
    INVALID_IRD = 7
    INVALID_ORD = 8
    INVALID_CNTLID = 9


class FabricsType(IntEnum):
    """Fabrics commands. Base 6.1."""

    PROPERTY_SET = 0x00
    CONNECT = 0x01
    PROPERTY_GET = 0x04


class AdminOpcode(IntEnum):
    """Admin commands. Base 5."""

    IDENTIFY = 0x06
    SET_FEATURES = 0x09


class FeatureId(IntEnum):
    """Features that Set Features sets. Base 5.27.1."""

    NUMBER_OF_QUEUES = 0x07


class IOOpcode(IntEnum):
    """Commands of an I/O queue. NVM 3."""

    WRITE = 0x01
    READ = 0x02


class Property(IntEnum):
    """Properties of a controller, by their offsets. Base 3.1.3."""

    CAP = 0x00
    VS = 0x08
    CC = 0x14
    CSTS = 0x1C


class SglType(IntEnum):
    """Types of SGL descriptors. Base 4.1.2.1."""

    DATA_BLOCK = 0x0
    KEYED_DATA_BLOCK = 0x4


class SglSubtype(IntEnum):
    """Subtypes of SGL descriptors: what the address is; RDMA 3.1 has the last one.

    The key is to be invalidated by the response then.
    """

    ADDRESS = 0x0
    OFFSET = 0x1
    INVALIDATE_KEY = 0xF


class Status(IntEnum):
    """Status of a command: status code type (3 bits), then status code (8 bits). Base 4.2.3."""

    SUCCESS = 0x000
    INVALID_OPCODE = 0x001
    INVALID_FIELD = 0x002
    DATA_TRANSFER_ERROR = 0x004
    INVALID_NAMESPACE = 0x00B
    COMMAND_SEQUENCE_ERROR = 0x00C
    DATA_SGL_LENGTH_INVALID = 0x00F
    SGL_DESCRIPTOR_TYPE_INVALID = 0x011
    LBA_OUT_OF_RANGE = 0x080
    CONNECT_INCOMPATIBLE_FORMAT = 0x180
    CONNECT_INVALID_PARAMETERS = 0x182


class RdmaConnectRequest(Header, clause="RDMA 3.2", label="nvme_rdma_req", order=LITTLE):
    """Private data of a REQ: which queue, and its depths. ``hsqsize`` is one less than it is."""

    recfmt: int = bits(16, f"{_CM}.req.recfmt", enum=PrivateDataFormat)
    qid: int = bits(16, f"{_CM}.req.qid")
    hrqsize: int = bits(16, f"{_CM}.req.hrqsize")
    hsqsize: int = bits(16, f"{_CM}.req.hsqsize")
    cntlid: int = bits(16, f"{_CM}.req.cntlid", HEX)
    resv176: bytes = raw(22, f"{_CM}.req.reserved")


class RdmaConnectAccept(Header, clause="RDMA 3.2", label="nvme_rdma_rep", order=LITTLE):
    """Private data of a REP: the depth of the controller's receive queue."""

    recfmt: int = bits(16, f"{_CM}.rsp.recfmt", enum=PrivateDataFormat)
    crqsize: int = bits(16, f"{_CM}.rsp.crqsize")
    resv224: bytes = raw(28, f"{_CM}.rsp.reserved")


class RdmaConnectReject(Header, clause="RDMA 3.2", label="nvme_rdma_rej", order=LITTLE):
    """Private data of a REJ: why."""

    recfmt: int = bits(16, f"{_CM}.rej.recfmt", enum=PrivateDataFormat)
    sts: int = bits(16, f"{_CM}.rej.status", HEX, enum=RejectStatus)


class _Command(Header, abstract=True):
    """What begins an Admin or I/O command, with the SGL descriptor. Base 3.3.3.1.

    The descriptor is a keyed data block. One without a key has 32 bits of length, of which the
    highest 8 are the lowest of ``key``; there, and in what is reserved after them, are zeros.
    """

    opcode: int = bits(8, f"{_CMD}.opc", HEX)
    psdt: int = bits(2, f"{_CMD}.psdt", HEX, default=1)
    resv4: int = bits(4)
    fuse: int = bits(2, f"{_CMD}.fuse_op", HEX)
    cid: int = bits(16, f"{_CMD}.cid", HEX)
    nsid: int = bits(32, f"{_CMD}.nsid", HEX)
    resv64: bytes = raw(8)
    mptr: int = bits(64, f"{_CMD}.mptr", HEX)
    address: int = bits(64, f"{_CMD}.sgl1.addr", HEX)
    length: int = bits(24, f"{_CMD}.sgl1.len")
    key: int = bits(32, f"{_CMD}.sgl1.key", HEX)
    sgl_type: int = bits(4, f"{_CMD}.sgl.type", HEX, enum=SglType)
    sgl_subtype: int = bits(4, f"{_CMD}.sgl.subtype", HEX, enum=SglSubtype)


class AdminCommand(_Command, clause="Base 3.3.3.1", label="nvme_admin", order=LITTLE):
    """A command of the Admin queue."""

    cdw10: int = bits(32, f"{_CMD}.dword10", HEX)
    cdw11: int = bits(32, f"{_CMD}.dword11", HEX)
    cdw12: int = bits(32, f"{_CMD}.dword12", HEX)
    cdw13: int = bits(32, f"{_CMD}.dword13", HEX)
    cdw14: int = bits(32, f"{_CMD}.dword14", HEX)
    cdw15: int = bits(32, f"{_CMD}.dword15", HEX)


class IOCommand(_Command, clause="NVM 3.2.4, 3.2.6", label="nvme_io", order=LITTLE):
    """READ or WRITE: ``nlb`` is one less than the number of blocks, from ``slba`` on."""

    slba: int = bits(64, f"{_CMD}.slba", HEX)
    nlb: int = bits(16, f"{_CMD}.nlb")
    lr: int = bits(1, f"{_CMD}.lr", HEX)
    fua: int = bits(1, f"{_CMD}.fua", HEX)
    prinfo: int = bits(4, f"{_CMD}.prinfo", HEX)
    resv10: int = bits(10)
    dsm: int = bits(32, "", HEX)
    eilbrt: int = bits(32, f"{_CMD}.eilbrt", HEX)
    elbat: int = bits(16, f"{_CMD}.elbat", HEX)
    elbatm: int = bits(16, f"{_CMD}.elbatm", HEX)


class FabricsCommand(Header, clause="Base 6.1", label="nvme_fabrics", order=LITTLE):
    """A Fabrics command, of which ``fctype`` says more."""

    opcode: int = bits(8, "nvme.fabrics.cmd.opc", HEX, default=FABRICS)
    psdt: int = bits(2, "", HEX, default=1)
    resv6: int = bits(6)
    cid: int = bits(16, "nvme.fabrics.cmd.cid", HEX)
    fctype: int = bits(8, "nvme.fabrics.cmd.fctype", HEX, enum=FabricsType)
    specific: bytes = raw(59)


class ConnectCommand(Header, clause="Base 6.3", label="nvme_connect", order=LITTLE):
    """Connect: makes a queue of the connection. ``kato`` is in ms; its data are in the SGL."""

    opcode: int = bits(8, "nvme.fabrics.cmd.opc", HEX, default=FABRICS)
    psdt: int = bits(2, "", HEX, default=1)
    resv6: int = bits(6)
    cid: int = bits(16, "nvme.fabrics.cmd.cid", HEX)
    fctype: int = bits(
        8, "nvme.fabrics.cmd.fctype", HEX, enum=FabricsType, default=FabricsType.CONNECT
    )
    resv152: bytes = raw(19, f"{_CONNECT}.rsvd1")
    address: int = bits(64, f"{_CMD}.sgl1.addr", HEX)
    length: int = bits(24, f"{_CMD}.sgl1.len")
    key: int = bits(32, f"{_CMD}.sgl1.key", HEX)
    sgl_type: int = bits(4, f"{_CMD}.sgl.type", HEX, enum=SglType)
    sgl_subtype: int = bits(4, f"{_CMD}.sgl.subtype", HEX, enum=SglSubtype)
    recfmt: int = bits(16, f"{_CONNECT}.recfmt")
    qid: int = bits(16, f"{_CONNECT}.qid")
    sqsize: int = bits(16, f"{_CONNECT}.sqsize")
    cattr: int = bits(8, f"{_CONNECT}.cattr", HEX)
    resv8: int = bits(8)
    kato: int = bits(32, f"{_CONNECT}.kato")
    resv96: bytes = raw(12, f"{_CONNECT}.rsvd3")


class ConnectData(Header, clause="Base 6.3", label="nvme_connect_data", order=LITTLE):
    """Data of Connect: the host, the subsystem, and the controller that is wanted."""

    hostid: bytes = raw(16, f"{_CONNECT}.data.hostid")
    cntlid: int = bits(16, f"{_CONNECT}.data.cntrlid", HEX)
    resv1904: bytes = raw(238, f"{_CONNECT}.data.rsvd0")
    subnqn: bytes = raw(256, f"{_CONNECT}.data.subnqn", TEXT)
    hostnqn: bytes = raw(256, f"{_CONNECT}.data.hostnqn", TEXT)
    resv2048: bytes = raw(256, f"{_CONNECT}.data.rsvd1")


class PropertyCommand(Header, clause="Base 6.5, 6.6", label="nvme_property", order=LITTLE):
    """Property Get or Property Set; ``size`` 0 is of 4 bytes, 1 of 8. ``value`` is what is set."""

    opcode: int = bits(8, "nvme.fabrics.cmd.opc", HEX, default=FABRICS)
    psdt: int = bits(2, "", HEX, default=1)
    resv6: int = bits(6)
    cid: int = bits(16, "nvme.fabrics.cmd.cid", HEX)
    fctype: int = bits(8, "nvme.fabrics.cmd.fctype", HEX, enum=FabricsType)
    resv280: bytes = raw(35, f"{_PROPERTY}.rsvd0")
    resv5: int = bits(5)
    size: int = bits(3, f"{_PROPERTY}.attrib.size", HEX)
    resv24: bytes = raw(3, f"{_PROPERTY}.rsvd1")
    offset: int = bits(32, f"{_PROPERTY}.offset", HEX, enum=Property)
    value: int = bits(64, "nvme.fabrics.prop_get_set.data.8B", HEX)
    resv64: bytes = raw(8)


class NvmeCompletion(Header, clause="Base 3.3.3.2", label="nvme_cqe", order=LITTLE):
    """A completion: ``result`` is what the command returns, ``sqhd`` the head of its queue."""

    result: int = bits(64, "", HEX)
    sqhd: int = bits(16, f"{_CQE}.sqhd", HEX)
    sqid: int = bits(16, f"{_CQE}.sqid", HEX)
    cid: int = bits(16, f"{_CQE}.cid", HEX)
    dnr: int = bits(1, f"{_CQE}.status.dnr")
    more: int = bits(1, f"{_CQE}.status.m")
    crd: int = bits(2, f"{_CQE}.status.crd", HEX)
    status: int = bits(11, "", HEX, enum=Status)
    phase: int = bits(1, f"{_CQE}.status.p", HEX)


class IdentifyController(Header, clause="Base 5.17.2.1", label="nvme_identify_ctrl", order=LITTLE):
    """Identify Controller data, with the fields that a host needs over RDMA.

    ``mdts`` is an exponent, in pages; ``ioccsz`` and ``iorcsz`` are in 16 bytes.
    """

    vid: int = bits(16, "", HEX)
    ssvid: int = bits(16, "", HEX)
    sn: bytes = raw(20, "", TEXT)
    mn: bytes = raw(40, "", TEXT)
    fr: bytes = raw(8, "", TEXT)
    rab: int = bits(8)
    ieee: int = bits(24, "", HEX)
    cmic: int = bits(8, "", HEX)
    mdts: int = bits(8)
    cntlid: int = bits(16, "", HEX)
    ver: int = bits(32, "", HEX)
    other_84: bytes = raw(428)
    sqes: int = bits(8, "", HEX, default=0x66)
    cqes: int = bits(8, "", HEX, default=0x44)
    maxcmd: int = bits(16)
    nn: int = bits(32)
    other_520: bytes = raw(16)
    sgls: int = bits(32, "", HEX)
    other_540: bytes = raw(228)
    subnqn: bytes = raw(256, "", TEXT)
    resv_1024: bytes = raw(768)
    ioccsz: int = bits(32)
    iorcsz: int = bits(32, default=1)
    icdoff: int = bits(16)
    fcatt: int = bits(8, "", HEX)
    msdbd: int = bits(8, default=1)
    other_1804: bytes = raw(2292)


class IdentifyNamespace(Header, clause="NVM 4.1.5.1", label="nvme_identify_ns", order=LITTLE):
    """Identify Namespace data: sizes in blocks, whose size is 2 to the power of ``lbads``."""

    nsze: int = bits(64)
    ncap: int = bits(64)
    nuse: int = bits(64)
    nsfeat: int = bits(8, "", HEX)
    nlbaf: int = bits(8)
    flbas: int = bits(8, "", HEX)
    other_27: bytes = raw(101)
    ms: int = bits(16)
    lbads: int = bits(8)
    rp: int = bits(8)
    other_132: bytes = raw(3964)


Command = AdminCommand | IOCommand | FabricsCommand | ConnectCommand | PropertyCommand
"""Any command."""
_FABRICS: Final[Mapping[int, type[ConnectCommand | PropertyCommand]]] = {
    FabricsType.CONNECT: ConnectCommand,
    FabricsType.PROPERTY_GET: PropertyCommand,
    FabricsType.PROPERTY_SET: PropertyCommand,
}


def parse_command(capsule: bytes, qid: int) -> Command:
    """Parse the command of a capsule of a queue: 0 is the Admin queue, others are I/O queues.

    :class:`~rdmawire.errors.WireError` for a capsule that is shorter than a command.
    """
    common = FabricsCommand.parse(capsule)
    if common.opcode == FABRICS:
        table = _FABRICS.get(common.fctype)
        return common if table is None else table.parse(capsule)
    return IOCommand.parse(capsule) if qid else AdminCommand.parse(capsule)


def command_name(command: Command) -> str:
    """Return the name of a command, or its numbers."""
    if command.opcode == FABRICS and not isinstance(command, AdminCommand | IOCommand):
        return _name(FabricsType, command.fctype)
    return _name(IOOpcode if isinstance(command, IOCommand) else AdminOpcode, command.opcode)


def _name(names: type[IntEnum], number: int) -> str:
    return names(number).name if number in {*names} else f"{number:#04x}"


def status_name(status: int) -> str:
    """Return the name of a status, or its number."""
    return Status(status).name if status in {*Status} else f"{status:#05x}"
