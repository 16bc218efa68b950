"""The runs of seed 1 that find planted bugs: tests begin there, not at run 0.

``python -m tests.fuzz.planted_bug_runs`` searches all bugs from run 0 on, in two minutes, and
prints :data:`FIRST_RUNS`.
"""

from collections.abc import Callable
from typing import Final

from rdmawire.fuzz.fuzzer import Found, Fuzzer, make_fuzzer
from rdmawire.fuzz.planted_bugs import PLANTED_BUGS, PlantedBug

SEED: Final = 1
BATCH: Final = 5
RUNS: Final = 4000
"""Runs by which a finding is searched."""
BUDGET: Final = 25_000
"""Packets within which each bug is found from run 0 on."""

FIRST_RUNS: Final = {
    "any-access-right": 540,
    "range-one-too-long": 688,
    "range-from-any-start": 30,
    "range-by-first-byte": 231,
    "any-key-variant": 199,
    "key-of-nothing": 76,
    "atomic-without-right": 895,
    "atomic-aligned-to-four": 98,
    "flush-without-right": 260,
    "short-writes": 23,
    "long-writes": 547,
    "any-dma-length": 618,
    "no-limit-of-dma-length": 780,
    "short-middle-packet": 82,
    "longer-than-mtu": 52,
    "pad-of-writes": 27,
    "gap-of-one": 52,
    "nak-for-each-packet-after-a-gap": 47,
    "begins-in-a-message": 31,
    "access-error-not-fatal": 30,
    "access-error-as-invalid-request": 25,
    "misaligned-as-access-error": 66,
    "xrc-any-srq": 125,
    "write-changes-pending-read": 89,
    "atomic-changes-pending-read": 682,
    "ack-behind-read-response": 64,
    "one-read-too-few": 67,
    "refused-key-drops-responses": 471,
    "any-partition": 49,
    "any-peer": 80,
    "any-source-address": 80,
    "any-transport-version": 46,
    "transport-version-one": 71,
    "any-ip-checksum": 156,
    "any-udp-length": 43,
    "any-ip-version": 611,
    "short-read": 39,
    "without-credits": 44,
    "req-not-repeated": 227,
    "rep-not-repeated": 25,
    "data-does-not-establish": 162,
    "two-dreqs-deadlock": 25,
    "no-drep-in-timewait": 80,
    "no-timewait": 162,
    "qp-stays-in-rts": 80,
    "rep-for-ever": 772,
    "peers-id-not-compared": 1227,
    "any-service-id": 37,
    "any-remote-gid": 117,
    "no-hops-left": 122,
    "any-mtu": 402,
    "any-class-version": 112,
    "pad-longer-than-payload": 109,
    "atomiceth-of-24-bytes": 23,
    "immediate-before-reth": 437,
    "ip-options-ignored": 226,
    "fragments-accepted": 352,
    "any-udp-port": 44,
}
"""The first run that finds each bug which the first 20 runs do not find."""


def first_found(bug: PlantedBug, wanted: Callable[[Found], bool] = lambda _: True) -> Found:
    """The first finding of a bug that is wanted, from its row of :data:`FIRST_RUNS` on."""
    return found_by(make_fuzzer(bug.spec), FIRST_RUNS.get(bug.name, 0), wanted)


def found_by(
    fuzzer: Fuzzer, first: int = 0, wanted: Callable[[Found], bool] = lambda _: True
) -> Found:
    """The first finding that is wanted, from the run ``first`` on.

    Raise ``AssertionError`` if there is none within :data:`RUNS` runs.
    """
    for at in range(first, first + RUNS, BATCH):
        for found in filter(wanted, fuzzer.batch(SEED, at, BATCH).found):
            return found
    raise AssertionError(f"nothing is found by {RUNS} runs from {first} on")


def found_within_budget(bug: PlantedBug) -> Found:
    """The first finding of a bug, by :data:`BUDGET` packets from run 0 on.

    Raise ``AssertionError`` if there is none.
    """
    fuzzer, executed, first = make_fuzzer(bug.spec), 0, 0
    while executed < BUDGET:
        batch = fuzzer.batch(SEED, first, BATCH)
        if batch.found:
            return batch.found[0]
        executed, first = executed + batch.executed, first + BATCH
    raise AssertionError(f"{bug.name} is not found by {executed} packets")


def _table() -> None:
    for bug in PLANTED_BUGS.values():
        run = found_within_budget(bug).run
        if run >= 20:
            print(f'    "{bug.name}": {run},')


if __name__ == "__main__":
    _table()
