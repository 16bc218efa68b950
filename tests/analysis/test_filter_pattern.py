"""Regular expressions: the same finds as `re`, and never any longer than the subject asks for."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.analysis.filter.pattern import Pattern, PatternError
from tests.waiting import calls

LETTERS = st.sampled_from(
    ["a", "b", "B", "\\n", ".", "\\d", "\\W", "[ab]", "[^a]", "[a-c0]", "\\x41"]
)


def _expressions() -> st.SearchStrategy[str]:
    return st.recursive(
        LETTERS,
        lambda part: st.one_of(
            st.tuples(part, part).map("".join),
            st.tuples(part, part).map("(?:{0[0]}|{0[1]})".format),
            st.tuples(part, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,}", "*?"])).map(
                "({0[0]}){0[1]}".format
            ),
        ),
        max_leaves=8,
    )


PLACED = st.tuples(st.sampled_from(["", "^"]), _expressions(), st.sampled_from(["", "$"]))


@given(PLACED.map("".join), st.text("abB\n09A_", max_size=12).map(str.encode))
def test_what_is_found_is_what_re_finds(pattern: str, subject: bytes) -> None:
    found = re.search(pattern.encode(), subject, re.IGNORECASE)
    assert Pattern(pattern.encode()).found_in(subject) == bool(found)


@pytest.mark.parametrize(
    ("pattern", "subject", "found"),
    [
        ("(?-i)RT", b"rt", False),
        ("(?-i:R)t", b"RT", True),
        ("(?-i:R)t", b"rT", False),
        ("a.b", b"a\nb", False),
        ("(?s)a.b", b"a\nb", True),
        ("a$", b"a\n", True),
        ("a\\z", b"a\n", False),
        ("\\Ab", b"ab", False),
        ("(^|x)a", b"ba xa", True),
        ("", b"", True),
        ("x{0}", b"", True),
        ("[]a]", b"]", True),
        ("[^]a]", b"]a", False),
        ("[a-]", b"-", True),
        ("\\.", b"x", False),
        ("\\x{41}", b"a", True),
        ("\\0", b"\0", True),
        ("a{,3}", b"a{,3}", True),
        ("a{3", b"xa{3", True),
    ],
)
def test_finds(pattern: str, subject: bytes, found: bool) -> None:
    assert Pattern(pattern.encode()).found_in(subject) is found


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "[", "[a", "*", "a**", "(?=a)", "(?!a)", "(?<=a)", "(?P<a>b)", "\\1", "?a"),
        *(
            "\\b",
            "\\Q",
            "\\",
            "[[:alpha:]]",
            "[b-a]",
            "[\\d-f]",
            "a{301}",
            "a{3,2}",
            "(a{300}){2}",
            "?a",
        ),
        *("(" * 51 + ")" * 51, "a" * 301, "(((){300}){300}){300}"),
    ],
)
def test_a_wrong_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="the regular expression"):
        Pattern(pattern.encode())


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_any_pattern_is_a_pattern_or_an_error_of_one_line(pattern: bytes, subject: bytes) -> None:
    said = ""
    try:
        Pattern(pattern).found_in(subject)
    except PatternError as error:
        said = str(error)
    assert said == "" or said.isprintable()


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*b",
        "(a|aa)+$",
        "(.*)*x",
        "a*a*a*a*a*a*a*b",
        "(a?){30}a{30}b",
        "(a|b)*a(a|b){14}c",
    ],
)
def test_no_pattern_hangs(pattern: str) -> None:
    subject = b"ab" * 1000 + b"a" * 30_000
    compiled = Pattern(pattern.encode())
    assert calls(lambda: compiled.found_in(subject)) < 4 * len(subject)
