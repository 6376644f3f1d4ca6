"""An Avro schema of a registry: its text, what it references, how it reads others."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from millstream.schemas.avro.compatibility import incompatibilities
from millstream.schemas.avro.text import canonical_text
from millstream.schemas.avro.types import Type, parse
from millstream.schemas.definition import Difference, References, refuse_message


class AvroSchema:
    """Raises `InvalidSchema` for a text that is none.

    References are texts by name, those that others build on first: Avro uses what they define by
    its full name, whatever the references are called.
    """

    def __init__(self, text: str, references: References) -> None:
        self.type: Type
        self.type, self._known = parse(text, references)

    @cached_property
    def canonical_text(self) -> str:
        return canonical_text(self.type, known=self._known)

    def normalized_text(self) -> str:
        return canonical_text(self.type, known=self._known, sort=True)

    def formatted_text(self, form: str) -> str:
        """`resolved`: what is referenced stands where it is first used."""
        return canonical_text(self.type) if form == "resolved" else self.canonical_text

    def record_names(self) -> list[str]:
        return [self.type.full_name or self.type.kind]

    def value_checker(self, indexes: Sequence[int]) -> Callable[[bytes], None]:
        # Only topics that check whole values load the library that reads them.
        from millstream.schemas.avro.values import value_checker

        return value_checker(self.type)

    # Any: a value of whatever type the schema declares.
    def value_decoder(self, indexes: Sequence[int]) -> Callable[[bytes], Any]:
        from millstream.schemas.avro.values import value_decoder

        return value_decoder(self.type)

    def value_encoder(self, message: str) -> Callable[[bytes], bytes]:
        from millstream.schemas.avro.encoding import value_encoder

        refuse_message(message)
        return value_encoder(self.type)

    def differences(self, writer: "AvroSchema") -> Sequence[Difference]:
        return incompatibilities(self.type, writer.type)
