"""Files of `rdmawire fuzz learn` are replaced only by complete ones."""

import errno
import os
from pathlib import Path

import pytest

from rdmawire.cli.fuzz.learn_files import write_output
from rdmawire.errors import FuzzError


def test_a_file_is_replaced_only_by_a_complete_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "machine.dot"
    write_output(path, "old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(FuzzError, match=r"machine\.dot: no space is left on the device"):
            write_output(path, "new")
    assert path.read_text() == "old"
    write_output(path, "newer")
    assert path.read_text() == "newer"
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_file_may_have_the_name_of_standard_output_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_output(Path("-"), "machine")
    assert Path("-").read_text() == "machine"
