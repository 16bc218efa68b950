"""Filters of every construct, and the frames to try them on."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from rdmawire.capture import open_capture
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from tests.captures import CAPTURES

TABLE = Path(__file__).parents[1] / "interop" / "filters.txt"
FILTERS = [line for line in TABLE.read_text().splitlines() if line and not line.startswith("# ")]
"""The filters that tshark is asked as well."""

_SAMPLED = (
    *("linux/rxe61_rnr.pcap", "linux/rxe61_vt_rc_v6.pcap", "linux/siw61_vt_all.pcap"),
    *("generated/vxlan.pcap", "generated/management.pcap", "generated/neighbours.pcap"),
    *("generated/tagged.pcap", "faulty/malformed.pcap"),
)


@cache
def frames() -> tuple[Dissection, ...]:
    """Some frames of most kinds."""
    return tuple(_frames())


def _frames() -> Iterator[Dissection]:
    for name in _SAMPLED:
        with open_capture(CAPTURES / name) as reader:
            yield from Dissector().capture(reader)


def filters(of: list[str] = FILTERS) -> st.SearchStrategy[str]:
    """Filters, and combinations of them."""
    return st.recursive(
        st.sampled_from(of),
        lambda part: st.one_of(
            part.map("not ({})".format),
            st.tuples(part, st.sampled_from(["and", "or", "xor"]), part).map(
                lambda found: f"({found[0]}) {found[1]} ({found[2]})"
            ),
        ),
        max_leaves=5,
    )
