"""Captures for tests of many captures: chosen ones for fast tests, the others for slow ones."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

CAPTURES = Path(__file__).parents[1] / "captures"
EVERY = sorted(CAPTURES.glob("*/*.pcap*"))
"""Every capture."""

CHOSEN_NAMES = {
    "faulty": "bad_checksums bad_icrc bad_vcrc iwarp_bad_crc iwarp_reserved malformed two_reasons",
    "generated": "roce_v1 roce_v2_ipv4 roce_v2_ipv6 native syndromes connection_codes management "
    "congestion flow_control neighbours tagged vxlan raw_ip ethernet_erf link_packets_erf "
    "raw_packets_erf iwarp_terminate iwarp_ipv6 iwarp_wrap iwarp_opcodes iwarp_segments "
    "iwarp_snapped iwarp_joined iwarp_hole",
    "golden": "carried_ethernet carried_links ud",
    "linux": "rxe61_rping rxe61_udaddy rxe61_vt_rc_v6 rxe61_vt_rc_all_256 rxe612_vt_rc_awrite "
    "siw612crc_rping siw61_err_badstag_write",
}
"""Small captures that together have each link type, transport, opcode and fault, by folder.

`tests/project/test_captures.py` tests that nothing is missing.
"""

CHOSEN = [path for path in EVERY if path.stem in CHOSEN_NAMES.get(path.parent.name, "").split()]
OTHERS = [path for path in EVERY if path not in CHOSEN]

_slow = pytest.mark.slow


def each_capture(paths: Iterable[Path] = EVERY) -> pytest.MarkDecorator:
    """Run a test with each capture as ``path``; those that are not chosen have the mark slow."""
    return pytest.mark.parametrize("path", [_param(path) for path in paths])


def _param(path: Path) -> Any:
    return pytest.param(path, id=path.name, marks=() if path in CHOSEN else _slow)


def captures_at_once(wanted: Callable[[Path], bool] = lambda _: True) -> pytest.MarkDecorator:
    """Run a test with the chosen captures as ``paths``, and, with the mark slow, with the others.

    It is for tests that cost less with many captures at once than with each.
    """
    chosen, others = (list(filter(wanted, each)) for each in (CHOSEN, OTHERS))
    sets = [pytest.param(chosen, id="chosen"), pytest.param(others, id="others", marks=_slow)]
    return pytest.mark.parametrize("paths", sets)
