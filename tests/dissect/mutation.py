"""Captures with bytes changed, the same ones for the same seed.

``RDMAWIRE_TEST_SEED`` says which, ``RDMAWIRE_TEST_MUTATED`` how many in fast tests.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

SEED = int(os.environ.get("RDMAWIRE_TEST_SEED", "1"))
MUTATED = int(os.environ.get("RDMAWIRE_TEST_MUTATED", "15"))
COUNTS = [MUTATED, pytest.param(4 * MUTATED, marks=pytest.mark.slow)]


def mutated(captures: list[Path], longest: int, path: Path, count: int = MUTATED) -> Iterator[None]:
    """Write one mutated capture after the other to ``path``; each printed, to be repeated."""
    for seed in range(SEED, SEED + count):
        chance = random.Random(seed)
        data = bytearray(chance.choice(captures).read_bytes()[: chance.randrange(24, longest)])
        for _ in range(chance.choice([1, 3, 10, 40])):
            if len(data) > 24:
                data[chance.randrange(24, len(data))] = chance.choice([0, 1, 255, 0x45])
        path.write_bytes(data)
        print(f"RDMAWIRE_TEST_SEED={seed}")
        yield
