"""What the formats share: the bounds of a schema, its references, differences between two.

A format parses a text to a `Schema` of its own and compares two of them. A `Difference` names the
place, the rule and whether the rule breaks readers; the registry decides by level which counts.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

TEXT_BYTES_MAX = 2**20
NODES_MAX = 20_000
DEPTH_MAX = 100
REFERENCES_MAX = 100


class SchemaType(Enum):
    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Reference(NamedTuple):
    """A schema of another subject that a text uses under `name`."""

    name: str
    subject: str
    version: int


class Difference(NamedTuple):
    """One difference between the schema of a reader and the schema of a writer.

    `description` names the two by `{reader}` and `{writer}`: which of them is the new schema
    depends on the direction of the check.
    """

    path: str
    rule: str
    breaks: bool
    description: str
    detail: str = ""
    # Only the JSON format: the rule breaks under STRICT and passes under LENIENT.
    passes_lenient: bool = False

    def text(self, *, reader: str, writer: str) -> str:
        """The difference as registry clients print it."""
        description = self.description.replace("{reader}", reader).replace("{writer}", writer)
        more = f", additionalInfo:'{self.detail}'" if self.detail else ""
        return f"{{errorType:'{self.rule}', description:'{description}'{more}}}"


class InvalidSchema(Exception):
    """The text is no schema of its type. `place` is a path inside of it."""

    def __init__(self, problem: str, place: str = "") -> None:
        super().__init__(f"{problem} at {place}" if place else problem)
        self.problem = problem
        self.place = place


class Schema(Protocol):
    """A parsed schema. Two texts with the same canonical text are the same schema."""

    @property
    def canonical_text(self) -> str: ...

    def normalized_text(self) -> str: ...

    def formatted_text(self, form: str) -> str:
        """The text in another form; the canonical one, if the type has no such form."""

    def record_names(self) -> list[str]:
        """The names that subjects may be called by: of a record, a title, the messages."""

    def value_checker(self, indexes: Sequence[int]) -> Callable[[bytes], None]:
        """A function that raises `ValueError` for bytes that are no value of the schema.

        `indexes` lead to a message of a Protobuf file; other types have none.
        """

    # Any: JSON, and what msgspec writes as JSON: times, decimals, UUIDs, bytes.
    def value_decoder(self, indexes: Sequence[int]) -> Callable[[bytes], Any]:
        """A function that returns the value of bytes; raises `ValueError` where there is none."""

    def value_encoder(self, message: str) -> Callable[[bytes], bytes]:
        """A function from JSON to the bytes of a value; raises `ValueError` for another value.

        `message` names a message of a Protobuf file, the first by default, to whose bytes its
        indexes are added; other types have none.
        """

    # Any: the other one is of the same type, which Python cannot say of a protocol.
    def differences(self, writer: Any) -> Sequence[Difference]:
        """What values of `writer` meet when this schema reads them."""


class Nodes:
    """Counts what a parser or a comparison visits; beyond a bound the schema is refused."""

    def __init__(self) -> None:
        self._count = 0

    def enter(self, depth: int, place: str) -> None:
        self._count += 1
        if self._count > NODES_MAX:
            raise InvalidSchema(f"more than {NODES_MAX} nodes")
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"nested deeper than {DEPTH_MAX}", place)


def refuse_message(message: str) -> None:
    """Raise for the name of a message where the type has no messages."""
    if message:
        raise ValueError(f"only a Protobuf schema has messages, such as {message[:100]!r}")


References = Mapping[str, str]  # The texts of referenced schemas, by the name they are used under.
