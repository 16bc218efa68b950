"""Every shipped capture: what was good is good after an edit, and an edit can be taken back."""

from pathlib import Path

from rdmawire.traffic.edit import ChecksumMode
from tests.captures import CAPTURES, CHOSEN, each_capture
from tests.traffic.edit.samples import EVERYTHING, checks, edited, records


@each_capture()
def test_an_edit_of_nothing_changes_nothing(path: Path) -> None:
    content = records(path)
    assert edited(content, []) == content


@each_capture()
def test_good_checksums_stay_good_and_bad_ones_bad(path: Path) -> None:
    content = records(path)
    after = edited(content, EVERYTHING.there())
    assert checks(after) == checks(content)


@each_capture()
def test_the_inverse_edit_restores_every_byte(path: Path) -> None:
    content = records(path)
    after = edited(content, EVERYTHING.there())
    assert edited(after, EVERYTHING.back()) == content


def test_most_frames_are_other_ones_after_an_edit() -> None:
    before = [one for path in CHOSEN for one in records(path)]
    after = edited(before, EVERYTHING.there())
    same = sum(one.data == other.data for one, other in zip(before, after, strict=True))
    assert len(before) > 1000
    assert same < len(before) / 3


def test_without_seals_what_covers_the_change_is_wrong() -> None:
    path = CAPTURES / "linux" / "rxe61_write_bw.pcap"
    after = edited(records(path), EVERYTHING.there(), ChecksumMode.NONE)
    found = {name: good for frame in checks(after) for name, good in frame}
    assert found == {"ICRC": False, "IPv4 header checksum": False, "TCP checksum": False}


def test_with_all_seals_everything_is_right() -> None:
    path = CAPTURES / "faulty" / "bad_checksums.pcap"
    assert any(not good for frame in checks(records(path)) for _, good in frame)
    after = edited(records(path), [], ChecksumMode.ALL)
    assert all(good for frame in checks(after) for _, good in frame)
