"""The time of a message on a wire."""

import pytest

from rdmawire.gpudirect.message_time import wire_volume


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 40960])
def test_headers_of_each_frame_take_time(size: int) -> None:
    payloads = [4096] * (size // 4096) + ([size % 4096] if size % 4096 or not size else [])
    frames = [max(payload + 58, 60) + 4 + 20 for payload in payloads]
    full = (4096 + 58 + 4 + 20) / 4096
    assert wire_volume(size) * full == pytest.approx(sum(frames) + 20)
