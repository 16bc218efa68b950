"""`rdmawire fuzz list`: targets, options and planted bugs."""

import json

from tests.cli.command import rdmawire


def test_targets_are_listed() -> None:
    listed = rdmawire("fuzz", "list").stdout
    assert "engine" in listed
    (line,) = (line for line in listed.splitlines() if line.startswith("  any-qkey "))
    assert line.split()[1] == "ud"  # where the bug shows
    assert "  --profile   ibta, rxe" in listed
    values = json.loads(rdmawire("fuzz", "list", "--json").stdout)
    assert "engine" in values["targets"]
    assert "frames" in values["options"]["--function"]
