"""Many adapters at once: a frame costs no more among them, and they fit in memory."""

import sys
from typing import Any

from tools.bench.fabric import QPS, Cluster
from tools.bench.scale import measured

GIB = 1 << 30


def calls(nics: int) -> float:
    """Function calls for each frame, of a fabric of so many adapters: the same at each run."""
    cluster, count = Cluster(nics), 0

    def note(_: object, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        frames = cluster.run()
    finally:
        sys.setprofile(None)
    return count / frames


def test_a_frame_costs_no_more_among_more_adapters() -> None:
    assert calls(60) < 1.05 * calls(15)


def test_a_hundred_adapters_take_a_tenth_of_what_a_thousand_may() -> None:
    """1,000 adapters with 10,000 queue pairs fit in 2 GiB; ``make bench`` measures them."""
    alone, hundred = measured(2), measured(100)
    assert hundred.qps == 100 * QPS
    assert hundred.peak - alone.peak < 2 * GIB / 10
