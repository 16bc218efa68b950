"""Vectors by words: every spelling, every row of the index, and nothing that is not asked for."""

import tomllib
from functools import cache
from pathlib import Path

import pytest

from rdmawire.terminal import closest_names
from rdmawire.vectors.cases import VectorSearch, cases, generated, golden, row_names, vocabulary
from rdmawire.vectors.index import TABLES

CAPTURES = Path(__file__).parents[2] / "captures"


@cache
def of_golden() -> VectorSearch:
    return VectorSearch(golden(CAPTURES))


@cache
def of_generated() -> VectorSearch:
    return VectorSearch(generated(CAPTURES))


def names(*words: str) -> list[str]:
    return [one.case.name for one in of_golden().find(words)]


def test_no_word_is_every_case() -> None:
    assert names() == [case.name for case in cases(CAPTURES)]


@pytest.mark.parametrize(
    "spellings",
    [
        ("RNR_NAK", "RNR Nak", "rnr-nak", "NAK: RNR, receiver not ready"),
        ("REMOTE_ACCESS_ERROR", "Remote Access Error", "NAK: remote access error"),
        ("PSN_SEQUENCE_ERROR", "PSN sequence error", "nak-0-psn-sequence-error"),
        ("RC_CMP_SWAP", "rc cmp swap", "RC Cmp-Swap"),
        ("REJ.reason CONSUMER_REJECT", "rej reason consumer reject"),
    ],
)
def test_all_spellings_of_one_thing_find_the_same(spellings: tuple[str, ...]) -> None:
    first, *others = map(names, spellings)
    assert first
    assert all(other == first for other in others)


def test_a_name_in_full_is_that_alone() -> None:
    assert names("rnr-timer-1") == ["rnr-timer-1"]
    only, with_immediate = set(names("RC_SEND_ONLY")), set(names("RC_SEND_ONLY_WITH_IMMEDIATE"))
    assert "rc-send-imm-ipv4" in with_immediate - only
    assert "rc-send-ipv4" in only - with_immediate


def test_every_word_has_to_be_found_and_only_whole_ones_are() -> None:
    assert set(names("RNR_NAK", "lost")) == set(names("RNR_NAK")) & set(names("lost"))
    assert names("retransmissio") == names("!") == names("RNR_NAK", "") == []
    assert names("REM_ACCESS_ERR", "RDMA_READ") == [
        name for name in names("REM_ACCESS_ERR") if "rdma-read" in name
    ]


EVERY = pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
"""Search for one of four words, or for each."""


@pytest.mark.parametrize("table", TABLES)
@EVERY
def test_every_row_finds_the_captures_that_the_index_names(table: str, step: int) -> None:
    index = tomllib.loads((CAPTURES / "index.toml").read_text())[table]
    for row, places in list(index.items())[::step]:
        for search, folder in ((of_golden(), "golden/"), (of_generated(), "generated/")):
            having = search.find([row])
            shown = {one.case.file: one.case for one in reversed(having) if row in one.rows}
            named = {file: number for file, number in places if file.startswith(folder)}
            assert set(shown) == set(named)
            assert all(shown[f].first <= n <= shown[f].last for f, n in named.items())


def test_generated_frames_are_found_one_by_one() -> None:
    having = of_generated().find(["RD_CMP_SWAP"])
    assert {one.case.name for one in having} >= {"roce_v2_ipv4:57", "native:57"}
    assert all("RD_CMP_SWAP" in one.case.shows for one in having)


@pytest.mark.parametrize(
    ("wrong", "meant"), [("RNR_NACK", "RNR_NAK"), ("REM_ACCES_ERR", "REM_ACCESS_ERR")]
)
def test_what_was_meant_is_among_the_words(wrong: str, meant: str) -> None:
    assert closest_names(wrong, vocabulary(of_golden().vectors))[0] == meant


@EVERY
def test_every_word_that_is_offered_finds_something(step: int) -> None:
    searches = of_golden(), of_generated()
    rows = set(row_names())
    offered = [word for word in vocabulary(of_golden().vectors) if word in rows or word.isalpha()]
    assert len(offered) > 300
    lost = [word for word in offered[::step] if not any(search.find([word]) for search in searches)]
    assert lost == []
