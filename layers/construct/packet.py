"""Transport packets: structs of the headers, one behind the other."""

from typing import Any

from construct import (
    Adapter,
    Construct,
    Container,
    Default,
    GreedyBytes,
    Struct,
    Switch,
    ValidationError,
)

from rdmawire.layers.construct.header import number, struct
from rdmawire.layers.construct.refused import Refused
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH
from rdmawire.wire.opcode import Opcode, is_vendor
from rdmawire.wire.packet import LAYOUTS


def _opcode(bth: Any) -> int:
    return number(bth["opcode"], Opcode)


class _Padded(Adapter):
    """Parts what follows the headers into payload and pad, by the pad count of the BTH."""

    def _decode(self, obj: Container, context: Any, path: str) -> Container:  # noqa: ARG002
        rest, padcnt = obj.pop("rest"), obj.bth.padcnt
        if padcnt > len(rest):
            left = f"{len(rest)} bytes follow the headers"
            raise ValidationError(f"BTH.padcnt is {padcnt}, {left}", path=path)
        obj.payload, obj.pad = rest[: len(rest) - padcnt], rest[len(rest) - padcnt :]
        return obj

    def _encode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:  # noqa: ARG002
        payload = obj.get("payload", b"")
        padcnt = 0 if is_vendor(_opcode(obj["bth"])) else -len(payload) % 4
        pad = obj.get("pad", bytes(padcnt))
        bth = {"padcnt": len(pad), **obj["bth"]}
        return {**obj, "bth": bth, "rest": payload + pad}


def _extended(tables: tuple[type[Header], ...]) -> Construct:
    return Struct(*(table.label / struct(table) for table in tables))


_EXTENDED = {opcode: _extended(layout.headers) for opcode, layout in LAYOUTS.items()}
_RESERVED = Refused(lambda packet: f"opcode 0x{_opcode(packet['bth']):02x} is reserved (IBA 9.2.1)")

TransportPacket = "TransportPacket" / _Padded(
    Struct(
        "bth" / struct(BTH),
        "extended"
        / Default(Switch(lambda ctx: _opcode(ctx.bth), _EXTENDED, default=_RESERVED), {}),
        "rest" / GreedyBytes,
    )
)
"""``bth``, ``extended`` (the headers of the opcode, by label), ``payload`` and ``pad``.

Pad and pad count are worked out where they are left out. Reserved opcodes are an error.
"""
