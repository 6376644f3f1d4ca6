"""References to secrets, which stand in settings in the place of their values.

A reference says where the value is: `file:PATH`, `env:NAME`, for keys also `command:PROGRAM ARGS`
and `kms:PROGRAM ARGS`.
`ports.Secrets` reads the value. Invariant: no text of a reference contains a value, so settings can
be logged and shown.
"""

from typing import ClassVar, Self

HIDDEN = "[hidden]"
SECRET_BYTES_MAX = 4_096


class Secret:
    """Where a password is. Its text is hidden, `reference` is for operators; falsy if not set."""

    __slots__ = ("reference",)
    schemes: ClassVar[tuple[str, ...]] = ("file", "env")

    def __init__(self, reference: str = "") -> None:
        self.reference = reference

    @classmethod
    def parse(cls, text: object) -> Self:
        """Read a reference; `ValueError` for a literal, whose value it does not repeat."""
        if not isinstance(text, str):
            raise ValueError(f"must be {cls.forms()}")
        scheme, _, place = text.partition(":")
        if text and (scheme not in cls.schemes or not place.strip()):
            raise ValueError(f"must be {cls.forms()}")
        return cls(text)

    @classmethod
    def forms(cls) -> str:
        return " or ".join(f"{scheme}:…" for scheme in cls.schemes)

    @property
    def scheme(self) -> str:
        return self.reference.partition(":")[0]

    @property
    def place(self) -> str:
        """The path, the variable, or the program with its arguments."""
        return self.reference.partition(":")[2]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.reference == other.reference

    def __hash__(self) -> int:
        return hash(self.reference)

    def __bool__(self) -> bool:
        return bool(self.reference)

    def __repr__(self) -> str:
        return HIDDEN if self.reference else "''"

    __str__ = __repr__


class KeySecret(Secret):
    """Where a key is: a program may print it as well, or use it without showing it."""

    __slots__ = ()
    schemes: ClassVar[tuple[str, ...]] = ("file", "env", "command", "kms")


NO_SECRET = Secret()
NO_KEY = KeySecret()
