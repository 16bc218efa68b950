"""Regular expressions: what `re` finds is found, whatever the pattern, and nothing hangs.

What tshark finds is compared in `tests/interop/test_filter.py`.
"""

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.filter.regex import PatternError, compile_pattern

LETTERS = st.sampled_from(
    [
        "a",
        "b",
        "B",
        "\\n",
        ".",
        "\\d",
        "\\W",
        "\\s",
        "\\b",
        "[ab]",
        "[^a]",
        "[a-c0]",
        "\\x41",
        "\xe9",
    ]
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


@given(PLACED.map("".join), st.text("abB\n09A_ \v\xe9\xc9", max_size=12))
def test_what_is_found_is_what_re_finds(pattern: str, subject: str) -> None:
    found = re.search(pattern.encode("latin-1"), subject.encode("latin-1"), re.IGNORECASE)
    matches = compile_pattern(pattern.encode("latin-1"))
    assert matches(subject.encode("latin-1")) == bool(found)


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
        ("\\bRT\\b", b"x rt", True),
        ("\\bRT\\b", b"art", False),
        ("[[:alpha:]]", b"\xe9", False),
        ("[[:alpha:]]", b"1a", True),
        ("(?P<name>a)(?<other>b)", b"ab", True),
        ("a{301}", b"a" * 300, False),
        ("a(?#comment)b", b"ab", True),
        ("\\x4g", b"\4g", True),
        ("\\cA", b"\1", True),
        ("[\\\\d-f]", b"e", True),
        ("\xe9", b"\xc9", False),
    ],
)
def test_finds(pattern: str, subject: bytes, found: bool) -> None:
    assert compile_pattern(pattern.encode("latin-1"))(subject) is found


REFUSED = [
    ("(", "a '(' without ')'"),
    (")", "a ')' without '('"),
    ("[", "a '[' without ']'"),
    ("[a", "a '[' without ']'"),
    ("*", "nothing to repeat before '*'"),
    ("?a", "nothing to repeat before '?'"),
    ("a**", "'**': one repetition after another"),
    ("a++", "'++': one repetition after another"),
    ("a{1001}", "the repetition {1001}; the largest is 1000"),
    ("a{3,2}", "the repetition {3,2}"),
    ("(((a{300}){300}){300}){300}", "the repetition {300}; the largest is 1000, nested ones mult"),
    ("[b-a]", "'b-a' in '[...]', which is not a range or class"),
    ("[[:nothing:]]", "'[:nothing:]' in '[...]', which is not a range or class"),
    ("[\\d-f]", "'\\d-f', which is not a range"),
    ("[:alpha:]", "'[:alpha:]', a class that is not inside '[...]'"),
    ("\\", "ends with a single '\\'"),
    ("\\y", "'\\y', which is not understood here"),
    ("\\p{Lu}", "'\\p{Lu}', letters of one case"),
    ("(a)\\1", "'\\1', a back reference"),
    ("(?P<a>b)\\k<a>", "'\\k', a back reference"),
    ("(?P<a>b)(?P=a)", "'(?P=', a back reference"),
    ("(?=a)", "'(?=', a lookaround"),
    ("(?!a)", "'(?!', a lookaround"),
    ("(?<=a)", "'(?<=', a lookaround"),
    ("(?<!a)", "'(?<!', a lookaround"),
    ("(?>a)", "'(?>', which is not understood here"),
    ("(?x)a b", "'(?x', which is not understood here"),
    ("(?#comment", "a comment without ')'"),
    ("[^x]" * 30_000, "is too large: it needs more than 1048576 bytes"),
]


@pytest.mark.parametrize(("pattern", "message"), REFUSED, ids=[text[:20] for text, _ in REFUSED])
def test_a_wrong_pattern_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(pattern.encode())
    assert str(caught.value).startswith("the regular expression ")
    assert message in str(caught.value)


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_any_pattern_is_a_pattern_or_an_error_of_one_line(pattern: bytes, subject: bytes) -> None:
    message = ""
    try:
        compile_pattern(pattern)(subject)
    except PatternError as error:
        message = str(error)
    assert message == "" or message.isprintable()


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("(a+)+$", True),
        ("(a|a)*c", False),
        ("(a|aa)+$", True),
        ("(.*)*x", False),
        ("a*a*a*a*a*a*a*c", False),
        ("(a?){30}a{30}c", False),
        ("(a|b)*a(a|b){14}c", False),
        ("(x+x+)+y", False),
    ],
)
def test_no_pattern_hangs(pattern: str, found: bool) -> None:
    """Backtracking would take longer than anybody waits."""
    subject = b"ab" * 1000 + b"a" * 30_000
    assert compile_pattern(pattern.encode())(subject) is found


@pytest.mark.parametrize("opening", ["[", "(", "(?#", "[[:alpha:]", "\\Q", "\\x{", "(?:a|"])
def test_a_pattern_of_many_openings_is_read_once(opening: str) -> None:
    message = ""
    try:
        compile_pattern(opening.encode() * (60_000 // len(opening)))
    except PatternError as error:
        message = str(error)
    assert len(message) < 200


def test_only_a_filter_with_a_pattern_loads_re2() -> None:
    script = (
        "import sys; from rdmawire.filter import Filter; Filter('frame contains 00'); "
        "assert 're2' not in sys.modules; Filter('frame ~ \"a\"'); assert 're2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
