"""Planted bugs of a reader of MPA: rules of the small reader, each with one replaced."""

from typing import Any

from rdmawire.fuzz.planted_bugs.bug import PlantedBug
from rdmawire.fuzz.small_mpa_reader import MPA_RULES, without_markers
from rdmawire.wire.mpa import FPDUCRC, FPDULength, fpdu_size


def _bug(name: str, about: str, clause: str, **rules: Any) -> PlantedBug:
    changed = MPA_RULES._replace(**rules)
    return PlantedBug(name, about, clause, service="mpa", kind="mpa", mpa=changed)


def _without_pad(length: int, position: int | None) -> int:
    if position is not None:
        return fpdu_size(length, position)
    return FPDULength.SIZE + length + FPDUCRC.SIZE


BUGS = (
    _bug(
        "markers-of-own-side",
        "a side sends Markers if it asked for them itself",
        "RFC 5044, 7.1.1",
        markers=lambda sender, _: sender.m,
    ),
    _bug(
        "crc-if-both-ask",
        "CRCs are in use only if both sides ask for them",
        "RFC 5044, 7.1.1",
        checks=lambda one, other: one and other,
    ),
    _bug(
        "private-data-not-skipped",
        "FPDUs are expected right after the header of a start-up frame",
        "RFC 5044, 7.1.1",
        private=lambda _: 0,
    ),
    _bug(
        "markers-from-start-up",
        "Markers are counted from the first byte of the start-up frame",
        "RFC 5044, 4.3",
        origin=lambda _: 0,
    ),
    _bug(
        "fpdu-without-pad",
        "an FPDU without Markers ends before its pad",
        "RFC 5044, 4.1",
        size=_without_pad,
    ),
    _bug(
        "segment-begins-fpdu",
        "each TCP segment is expected to begin with an FPDU",
        "RFC 5044, 5.1",
        joins=False,
    ),
    _bug(
        "retransmission-read-again",
        "a retransmission that brings new bytes, too, is read from its start",
        "RFC 9293, 3.10.7.4",
        fresh=lambda _, __: 0,
    ),
    _bug(
        "segments-as-they-arrive",
        "TCP segments are read in the order of their arrival",
        "RFC 9293, 3.10.7.4",
        waits=False,
    ),
    _bug(
        "mpa-crc-without-markers",
        "the CRC does not cover Markers",
        "RFC 5044, 4.4",
        covered=without_markers,
    ),
)
