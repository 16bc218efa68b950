"""Conversion of attributes between the integers of the protocol and the values of the engine."""

from errno import EINVAL, EOPNOTSUPP
from struct import Struct
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.verbs import (
    AddressHandle,
    MigrationState,
    QPAttributes,
    QPAttrMask,
    QPState,
    QPType,
)
from rdmawire.verbs_service.device import EmulatedDevice
from rdmawire.verbs_service.device_memory import MAX_DM_SIZE
from rdmawire.verbs_service.protocol import AH_ATTR, DEVICE_ATTR, PORT_ATTR, QP_ATTR
from rdmawire.wire.management import MTU

_GID: Final = Struct("=QQ")
_DEFAULT_HOPS: Final = 64
_AV, _ALT_PATH, _CAP = (mask.value for mask in (QPAttrMask.AV, QPAttrMask.ALT_PATH, QPAttrMask.CAP))


def gid_words(gid: bytes) -> tuple[int, int]:
    """A GID as two integers that have its bytes in memory order."""
    first, second = _GID.unpack(gid)
    return first, second


def gid_of(first: int, second: int) -> bytes:
    """The GID of two integers."""
    return _GID.pack(first, second)


def address_handle(device: EmulatedDevice, words: tuple[int, ...]) -> AddressHandle:
    """The path of ``ibv_ah_attr``. ``VerbsError`` EINVAL for one that a RoCE port cannot have."""
    attr = dict(zip(AH_ATTR, words, strict=True))
    if not attr["is_global"]:
        raise VerbsError("a path of RoCE needs a GRH: set is_global and grh.dgid", EINVAL)
    dgid = gid_of(attr["dgid0"], attr["dgid1"])
    sgid = device.gid_at(attr["sgid_index"])
    return AddressHandle(
        device.resolve(dgid),
        dgid,
        sgid,
        hop_limit=attr["hop_limit"] or _DEFAULT_HOPS,
        traffic_class=attr["traffic_class"],
        flow_label=attr["flow_label"],
        sl=attr["sl"],
        port_num=attr["ah_port_num"],
        sgid_index=attr["sgid_index"],
    )


def _ah_words(device: EmulatedDevice, handle: AddressHandle | None) -> dict[str, int]:
    if handle is None:
        return dict.fromkeys(AH_ATTR, 0)
    first, second = gid_words(handle.dgid)
    return dict.fromkeys(AH_ATTR, 0) | {
        "dgid0": first,
        "dgid1": second,
        "is_global": 1,
        "flow_label": handle.flow_label,
        "sgid_index": _sgid_index(device, handle),
        "hop_limit": handle.hop_limit,
        "traffic_class": handle.traffic_class,
        "sl": handle.sl,
        "ah_port_num": handle.port_num,
    }


def _sgid_index(device: EmulatedDevice, handle: AddressHandle) -> int:
    """The GID index with which a path was set, else the first one that has its source address."""
    if handle.sgid_index is not None:
        return handle.sgid_index
    return device.gid_table.index(handle.sgid) if handle.sgid in device.gids else 0


def path_words(device: EmulatedDevice, handle: AddressHandle) -> tuple[int, ...]:
    """``ibv_ah_attr`` of a path."""
    attr = _ah_words(device, handle)
    return tuple(attr[name] for name in AH_ATTR)


_NUMBERS: Final = tuple(
    name for name in QPAttributes._fields if name not in {"cap", "ah", "alt_ah", "sq_draining"}
)


def qp_attributes(
    device: EmulatedDevice, kind: QPType, mask: int, words: tuple[int, ...]
) -> tuple[QPAttributes, QPAttrMask]:
    """``ibv_qp_attr`` and its mask, for the engine. ``VerbsError`` for a path it cannot have."""
    if mask >> 32:
        raise VerbsError(f"attribute mask {mask:#x} has more than 32 bits", EINVAL)
    if mask & _CAP:
        raise VerbsError("the queues of a queue pair cannot be resized", EOPNOTSUPP)
    attr = dict(zip(QP_ATTR, words, strict=True))
    if kind is QPType.UD:
        mask &= ~_AV  # each datagram has its own path: ignored, as in Linux
    numbers = {name: attr[name] for name in _NUMBERS}
    numbers["qp_state"] = _known(QPState, attr["qp_state"])
    numbers["path_mtu"] = _known(MTU, attr["path_mtu"])
    numbers["path_mig_state"] = _known(MigrationState, attr["path_mig_state"])
    path = tuple(attr[name] for name in AH_ATTR) if mask & _AV else None
    alternate = None
    if mask & _ALT_PATH:
        names = (f"alt_{name}" for name in AH_ATTR if name != "ah_port_num")
        alternate = (*(attr[name] for name in names), attr["alt_port_num"])
    attributes = QPAttributes(
        **numbers,  # type: ignore[arg-type]
        ah=None if path is None else address_handle(device, path),
        alt_ah=None if alternate is None else address_handle(device, alternate),
    )
    return attributes, QPAttrMask(mask)


def _known(kind: type[QPState] | type[MTU] | type[MigrationState], value: int) -> int:
    """The member of an enumeration, or a number that is none: the engine refuses it."""
    return kind(value) if value in kind._value2member_map_ else value


def qp_words(device: EmulatedDevice, attributes: QPAttributes) -> tuple[int, ...]:
    """``ibv_qp_attr`` of a queue pair."""
    attr = {name: int(getattr(attributes, name)) for name in (*_NUMBERS, "sq_draining")}
    attr |= _ah_words(device, attributes.ah)
    attr |= {f"alt_{name}": value for name, value in _ah_words(device, attributes.alt_ah).items()}
    attr["alt_port_num"] = attributes.alt_port_num
    return tuple(attr[name] for name in QP_ATTR)


_ODP_AND_IMPLICIT: Final = 3
(
    _ODP_SEND,
    _ODP_RECV,
    _ODP_WRITE,
    _ODP_READ,
    _ODP_ATOMIC,
    _ODP_SRQ,
    _ODP_FLUSH,
    _ODP_ATOMIC_WRITE,
) = (1 << bit for bit in range(8))
_ODP_UD: Final = _ODP_SEND | _ODP_RECV | _ODP_SRQ
_ODP_RC: Final = _ODP_UD | _ODP_WRITE | _ODP_READ | _ODP_ATOMIC | _ODP_FLUSH | _ODP_ATOMIC_WRITE
_ODP: Final = {
    "odp_general": _ODP_AND_IMPLICIT,
    "odp_rc": _ODP_RC,
    "odp_uc": _ODP_UD | _ODP_WRITE,
    "odp_ud": _ODP_UD,
    "odp_xrc": _ODP_RC,
}
"""``ibv_odp_caps``: all operations of a service can use regions on demand."""

_VENDOR_ID: Final = 0xFFFFFF
"""Of no vendor, so that programs use nothing that is specific to one."""


def device_words(device: EmulatedDevice) -> tuple[int, ...]:
    """``ibv_device_attr``."""
    profile = device.nic.query_device()
    attr = {name: int(getattr(profile, name, 0)) for name in DEVICE_ATTR}
    attr |= {
        "node_guid": device.guid,
        "sys_image_guid": device.guid,
        "vendor_id": _VENDOR_ID,
        "max_pkeys": profile.pkey_tbl_len,
        "max_cq_moderation_count": profile.max_cq_count,
        "max_cq_moderation_period": profile.max_cq_period // 1000,
        **_ODP,
        "max_dm_size": MAX_DM_SIZE,
    }
    return tuple(attr[name] for name in DEVICE_ATTR)


_CM_SUPPORTED, _IP_BASED_GIDS = 1 << 16, 1 << 26
_ETHERNET: Final = 2
_PHYS_DISABLED, _PHYS_LINK_UP = 3, 5


def port_words(device: EmulatedDevice) -> tuple[int, ...]:
    """``ibv_port_attr``."""
    port = device.nic.query_port()
    attr = dict.fromkeys(PORT_ATTR, 0) | {
        "state": int(port.state),
        "max_mtu": int(port.max_mtu),
        "active_mtu": int(device.mtu),
        "gid_tbl_len": len(device.gid_table),
        "port_cap_flags": _CM_SUPPORTED | _IP_BASED_GIDS,
        "max_msg_sz": min(port.max_msg_sz, 1 << 31),
        "pkey_tbl_len": port.pkey_tbl_len,
        "max_vl_num": 1,
        "active_width": device.width,
        "active_speed": device.speed,
        "phys_state": _PHYS_LINK_UP if device.nic.up else _PHYS_DISABLED,
        "link_layer": _ETHERNET,
        "active_speed_ex": device.speed,
    }
    return tuple(attr[name] for name in PORT_ATTR)
