"""Searches record bytes by regular expressions, at a cost that is bounded before the search.

Owns the choice of RE2, which has no backtracking: a search takes at most the size of the compiled
program for every byte. Pure. A search reads no more of a text than `STEPS_MAX` allows, which is a
megabyte for a program of 64 instructions; the bytes behind are ignored. Without that bound one
record could hold up the event loop for ten seconds.
"""

import re

PATTERN_LENGTH_MAX = 1_024
PROGRAM_SIZE_MAX = 1_024
# Two nanoseconds each were measured where RE2 must fall back to its slowest engine: an eighth of a
# second at worst, and a few milliseconds with nearly every pattern that people write.
STEPS_MAX = 2**26
MEMORY_BYTES_MAX = 2 * 2**20  # Of a program and its remembered states.

_PLAIN = re.compile(rb"[\w\s/:;,@#%&=<>\"'`~!-]+")


class InvalidRegex(ValueError):
    """A regular expression that RE2 does not know, or one that costs too much."""


class Regex:
    """Searches in bytes that are UTF-8 as a rule; what is not matches no `.`."""

    __slots__ = ("_search", "literal", "text_bytes_max")

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise InvalidRegex(f"{len(pattern)} characters, at most {PATTERN_LENGTH_MAX}")
        try:
            import re2  # 2.4 MB of memory, for the first expression.
        except (ImportError, OSError) as problem:  # No descriptor or memory is left.
            raise InvalidRegex(f"RE2 cannot be loaded: {problem}") from None
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = MEMORY_BYTES_MAX
        try:
            spelled = pattern.encode()
            compiled = re2.compile(spelled, options)
        except UnicodeEncodeError:
            raise InvalidRegex("half a character, which no text has") from None
        except re2.error as problem:
            reason = problem.args[0] if problem.args else b"not a regular expression"
            text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            raise InvalidRegex(text) from None
        if compiled.programsize > PROGRAM_SIZE_MAX:
            raise InvalidRegex(
                f"it compiles to {compiled.programsize} instructions, at most {PROGRAM_SIZE_MAX}"
            )
        self._search = compiled.search
        self.text_bytes_max: int = STEPS_MAX // compiled.programsize
        # What has no special signs can be looked for as it stands, in less time.
        self.literal = spelled if _PLAIN.fullmatch(spelled) else None

    def found_in(self, text: bytes) -> bool:
        if self.literal is not None:
            return self.literal in text
        if len(text) > self.text_bytes_max:
            text = text[: self.text_bytes_max]
        return self._search(text) is not None
