"""Regular expressions of ``matches``: the syntax of PCRE2, as tshark takes it, searched by RE2.

RE2 searches in time linear in the subject, for every pattern, and in bounded memory. Where PCRE2
writes the same thing differently, the pattern is rewritten; what needs more than a finite
automaton (back references, lookaround, atomic groups) is refused. Bytes are compared, not
characters, and only ASCII letters have two cases.
"""

import re
from collections.abc import Callable

from rdmawire.errors import RdmaError
from rdmawire.filter.lexer import excerpt

__all__ = ["PatternError", "compile_pattern"]

_MAX_MEMORY = 1 << 20
"""Memory limit of RE2 for one pattern, in bytes: its program and the states that it has met."""


class PatternError(RdmaError):
    """A regular expression that is invalid, too large, or needs what RE2 does not have."""


def compile_pattern(pattern: bytes) -> Callable[[bytes], bool]:
    """Return a function that tests whether the pattern is found in a subject.

    ASCII letters match in both cases unless the pattern says ``(?-i)``. Raises
    :class:`PatternError`, without the pattern's position in the filter.
    """
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MAX_MEMORY
    options.case_sensitive = options.log_errors = False
    options.never_capture = True
    try:
        search = re2.compile(_to_re2(pattern), options).search
    except re2.error as error:
        said = error.args[0].decode(errors="replace")
        raise PatternError(f"the regular expression {_reason(said)}") from None
    return lambda subject: search(subject) is not None


_REASONS = {
    "missing ]": "has a '[' without ']'",
    "missing )": "has a '(' without ')'",
    "unexpected )": "has a ')' without '('",
    "trailing \\": "ends with a single '\\'",
    "no argument for repetition operator": "has nothing to repeat before '{}'",
    "bad repetition operator": "has '{}': one repetition after another",
    "invalid repetition size": "has the repetition {}; the largest is 1000, nested ones multiplied",
    "invalid character class range": "has '{}' in '[...]', which is not a range or class",
    "invalid perl operator": "has '{}', which is not understood here",
    "invalid escape sequence": "has '{}', which is not understood here",
    "pattern too large - compile failed": f"is too large: it needs more than {_MAX_MEMORY} bytes",
}


def _reason(message: str) -> str:
    """Translate RE2's report ``message: fragment`` to the terms of filters."""
    said, _, fragment = message.partition(": ")
    return _REASONS.get(said, f"is invalid: {said} '{{}}'").format(excerpt(fragment))


# From PCRE2's syntax to RE2's.

_ESCAPED = rb"\\(?:x\{[^}]*\}?|x[0-9A-Fa-f]{0,2}|c[!-~]|o\{[0-7]{1,3}\}|.)"
_ESCAPE_IN_SET = re.compile(rb"(?P<range>\\[dDhHsSvVwW]-[^\]])|" + _ESCAPED, re.DOTALL)
_TOKEN = re.compile(
    rb"""
      \\Q.*?(?:\\E|\Z)                                       # literal text
    | (?P<back>\\[1-9gk]|\(\?P=)
    | (?P<lookaround>\(\?<?[=!])
    | (?P<letters>\\[pP]\{\^?L[ltu]\})
    | (?P<comment>\(\?\#[^)]*\)?)
    | (?P<set>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]?)
    | (?P<end>\$)
    | (?P<escape>%b)
    """
    % _ESCAPED,
    re.VERBOSE | re.DOTALL,
)

_MEMBERS = {
    b"h": rb"\t \xa0",
    b"H": rb"\x00-\x08\n-\x1f!-\x9f\xa1-\xff",
    b"s": rb"\t-\r ",
    b"S": rb"\x00-\x08\x0e-\x1f!-\xff",
    b"v": rb"\n-\r\x85",
    b"V": rb"\x00-\t\x0e-\x84\x86-\xff",
}
"""The bytes of classes that RE2 does not have, or has with other bytes."""
_IN_SET = {**_MEMBERS, b"b": rb"\x08", b"e": rb"\x1b", b"E": b""}
_OUTSIDE = {
    **{letter: b"[%b]" % members for letter, members in _MEMBERS.items()},
    b"e": rb"\x1b",
    b"E": b"",
    b"G": rb"\A",
    b"N": rb"[^\n]",
    b"R": rb"(?:\r\n|[\n-\r\x85])",
    b"Z": rb"(?:\n?\z)",
}
_END = rb"(?:$|\n\z)"
"""``$`` also matches before a newline that ends the subject."""


def _to_re2(pattern: bytes) -> bytes:
    return _TOKEN.sub(_rewritten, pattern)


def _rewritten(token: "re.Match[bytes]") -> bytes:
    rewrite = _REWRITES.get(token.lastgroup or "")
    return rewrite(token[0]) if rewrite else token[0]


def _refuse(text: bytes, reason: str) -> bytes:
    fragment = excerpt(text.decode("latin-1"))
    raise PatternError(f"the regular expression has '{fragment}', {reason}")


def _comment(text: bytes) -> bytes:
    return b"" if text.endswith(b")") else _refuse(text, "a comment without ')'")


def _set(text: bytes) -> bytes:
    if text.startswith(b"[:") and text.endswith(b":]"):
        _refuse(text, "a class that is not inside '[...]'")
    return _ESCAPE_IN_SET.sub(_escaped_in_set, text)


def _escaped_in_set(escape: "re.Match[bytes]") -> bytes:
    if escape.lastgroup == "range":
        _refuse(escape[0], "which is not a range")
    return _escaped(escape[0], _IN_SET)


def _escaped(text: bytes, require_typed: dict[bytes, bytes]) -> bytes:
    letter, rest = text[1:2], text[2:]
    if letter == b"x":
        return text if rest[:1] == b"{" else rb"\x%02x" % int(rest or b"0", 16)
    if letter == b"c" and rest:
        return rb"\x%02x" % (rest.upper()[0] ^ 0x40)
    if letter == b"o" and rest:
        return rb"\x{%x}" % int(rest[1:-1], 8)
    return require_typed.get(letter, text)


_REWRITES: dict[str, Callable[[bytes], bytes]] = {
    "back": lambda text: _refuse(text, "a back reference, which is not understood here"),
    "lookaround": lambda text: _refuse(text, "a lookaround, which is not understood here"),
    "letters": lambda text: _refuse(text, "letters of one case, which is not understood here"),
    "comment": _comment,
    "set": _set,
    "end": lambda _: _END,
    "escape": lambda text: _escaped(text, _OUTSIDE),
}
