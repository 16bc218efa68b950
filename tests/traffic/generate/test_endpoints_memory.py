"""Memory for messages of any size, which costs a page."""

from random import Random

import pytest

from rdmawire.fabric.host import Host
from rdmawire.memory.page import Path
from rdmawire.traffic.generate.endpoints import PAGE, Buffers
from rdmawire.verbs.wr import LONGEST_MESSAGE


@pytest.mark.parametrize(("gpu", "path"), [(False, Path.HOST), (True, Path.GPU_DIRECT)])
def test_the_longest_message_has_room_and_costs_a_page(gpu: bool, path: Path) -> None:
    host = Host()
    store = Buffers(host, longest=LONGEST_MESSAGE, words=3, gpu=gpu, random=Random(1))
    source, sink = store.source, store.sink
    assert source.length == sink.length == LONGEST_MESSAGE
    last = source.iova + LONGEST_MESSAGE - 8
    assert bytes(source.read(last, 8)) == bytes(source.read(source.iova + PAGE - 8, 8))
    sink.write(sink.iova + 5 * PAGE, b"anywhere")
    assert bytes(sink.read(sink.iova, 8)) == b"anywhere"
    tally = host.nic.memory.counter[path]
    assert (tally.bytes, tally.transactions, tally.copies) == (32, 4, 0)


def test_words_are_memory_of_their_own() -> None:
    host = Host()
    store = Buffers(host, longest=0, words=PAGE // 8 + 1, gpu=False, random=Random(1))
    words = store.words
    before = bytes(words.read(words.iova + PAGE, 8))
    words.fetch_add(words.iova, 1)
    assert words.length == 2 * PAGE
    assert bytes(words.read(words.iova + PAGE, 8)) == before


def test_what_is_sent_is_random_by_its_generator() -> None:
    one, same, other = (
        Buffers(Host(), longest=1, words=1, gpu=False, random=Random(seed)).source
        for seed in (1, 1, 2)
    )
    data = [bytes(each.read(each.iova, 64)) for each in (one, same, other)]
    assert data[0] == data[1] != data[2]
