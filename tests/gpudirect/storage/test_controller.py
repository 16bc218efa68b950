"""The controller and its namespace: what each command gives, in every state."""

import pytest

from rdmawire.errors import TransferError
from rdmawire.gpudirect.storage import (
    AdminCommand,
    AdminOpcode,
    ConnectCommand,
    ConnectData,
    Controller,
    FabricsType,
    IdentifyController,
    IdentifyNamespace,
    IOCommand,
    IOOpcode,
    Namespace,
    Property,
    PropertyCommand,
    Status,
)
from rdmawire.gpudirect.storage.controller import SUBSYSTEM

BLOCKS = 100
GET, SET = FabricsType.PROPERTY_GET, FabricsType.PROPERTY_SET


def controller() -> Controller:
    return Controller(Namespace(bytes(512 * BLOCKS)), 4096)


def connect(one: Controller, qid: int = 0, cntlid: int = 0xFFFF, nqn: str = SUBSYSTEM) -> Status:
    data = ConnectData(cntlid=cntlid, subnqn=nqn.encode().ljust(256, b"\0"))
    return one.connect(ConnectCommand(qid=qid), data.build()).status


def enabled() -> Controller:
    one = controller()
    assert connect(one) is Status.SUCCESS
    one.execute(PropertyCommand(fctype=SET, offset=Property.CC, value=0x460001).build())
    return one


def test_a_controller_becomes_ready_and_shuts_down() -> None:
    one = controller()
    connect(one)
    csts = PropertyCommand(fctype=GET, offset=Property.CSTS).build()
    assert one.execute(csts).result == 0
    for value, status in (0x460001, 1), (0x464001, 0b1001), (0, 0):
        done = one.execute(PropertyCommand(fctype=SET, offset=Property.CC, value=value).build())
        assert done.status is Status.SUCCESS
        assert one.execute(csts).result == status


def test_identify_has_the_sizes() -> None:
    one = enabled()
    data = one.execute(AdminCommand(AdminOpcode.IDENTIFY, cdw10=1).build()).data
    found = IdentifyController.parse(data)
    assert (found.ioccsz * 16, found.iorcsz * 16, 4096 << found.mdts) == (64 + 4096, 16, 1 << 20)
    assert found.subnqn.rstrip(b"\0").decode() == SUBSYSTEM
    data = one.execute(AdminCommand(AdminOpcode.IDENTIFY, nsid=1).build()).data
    namespace = IdentifyNamespace.parse(data)
    assert (namespace.nsze, 1 << namespace.lbads) == (BLOCKS, 512)


@pytest.mark.parametrize("wanted", [0, 3, 0xFFFF])
def test_no_more_queues_are_given_than_there_are(wanted: int) -> None:
    command = AdminCommand(AdminOpcode.SET_FEATURES, cdw10=7, cdw11=wanted << 16 | wanted)
    given = min(wanted, 15)
    assert enabled().execute(command.build()).result == given << 16 | given


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (PropertyCommand(fctype=GET, offset=0x99), Status.INVALID_FIELD),
        (PropertyCommand(fctype=GET, offset=Property.CAP), Status.INVALID_FIELD),
        (PropertyCommand(fctype=GET, offset=Property.CAP, size=1), Status.SUCCESS),
        (PropertyCommand(fctype=GET, offset=Property.VS, size=1), Status.INVALID_FIELD),
        (PropertyCommand(fctype=SET, offset=Property.CSTS), Status.INVALID_FIELD),
        (PropertyCommand(fctype=0x42), Status.INVALID_OPCODE),
        (AdminCommand(0x99), Status.INVALID_OPCODE),
        (AdminCommand(AdminOpcode.IDENTIFY, cdw10=2), Status.INVALID_FIELD),
        (AdminCommand(AdminOpcode.IDENTIFY, nsid=2), Status.INVALID_NAMESPACE),
        (AdminCommand(AdminOpcode.SET_FEATURES, cdw10=6), Status.INVALID_FIELD),
    ],
)
def test_each_command_has_its_status(
    command: PropertyCommand | AdminCommand, status: Status
) -> None:
    assert enabled().execute(command.build()).status is status


def test_commands_before_connect_or_enabling_are_refused() -> None:
    identify = AdminCommand(AdminOpcode.IDENTIFY, cdw10=1).build()
    one = controller()
    assert one.execute(identify).status is Status.COMMAND_SEQUENCE_ERROR
    connect(one)
    assert one.execute(identify).status is Status.COMMAND_SEQUENCE_ERROR
    assert connect(one, qid=1, cntlid=1) is Status.COMMAND_SEQUENCE_ERROR


def test_connect_is_checked() -> None:
    wrong = Status.CONNECT_INVALID_PARAMETERS
    assert connect(controller(), nqn="nqn.2016-06.io.other") is wrong
    assert connect(controller(), cntlid=1) is wrong
    assert connect(enabled(), qid=1) is wrong
    assert connect(enabled(), qid=17, cntlid=1) is wrong
    assert connect(enabled(), qid=1, cntlid=1) is Status.SUCCESS
    old = ConnectCommand(recfmt=1)
    found = controller().connect(old, ConnectData().build())
    assert found.status is Status.CONNECT_INCOMPATIBLE_FORMAT


@pytest.mark.parametrize(
    ("slba", "nlb", "status"),
    [
        (0, BLOCKS - 1, Status.SUCCESS),
        (BLOCKS - 1, 0, Status.SUCCESS),
        (BLOCKS - 1, 1, Status.LBA_OUT_OF_RANGE),
        (BLOCKS, 0, Status.LBA_OUT_OF_RANGE),
        ((1 << 64) - 1, 0xFFFF, Status.LBA_OUT_OF_RANGE),
    ],
)
def test_the_range_of_blocks_is_checked(slba: int, nlb: int, status: Status) -> None:
    command = IOCommand(IOOpcode.READ, nsid=1, slba=slba, nlb=nlb)
    assert controller().namespace.check(command) is status
    assert controller().namespace.check(command.replace(nsid=2)) is Status.INVALID_NAMESPACE
    assert controller().namespace.check(command.replace(opcode=9)) is Status.INVALID_OPCODE


@pytest.mark.parametrize("size", [0, 511, 513])
def test_a_namespace_has_whole_blocks(size: int) -> None:
    with pytest.raises(TransferError, match="it is a multiple of 512"):
        Namespace(bytes(size))
