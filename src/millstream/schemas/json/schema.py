"""A JSON Schema of a registry: its text, what it references, how it reads others."""

from collections.abc import Callable, Sequence
from functools import cached_property

from msgspec import MsgspecError, Raw
from msgspec.json import decode

from millstream.schemas.definition import Difference, References, refuse_message
from millstream.schemas.json.compatibility import incompatibilities
from millstream.schemas.json.document import Document, text_of


class JsonSchema:
    """Raises `InvalidSchema` for a text that is none."""

    def __init__(self, text: str, references: References) -> None:
        self.document = Document(text, references)

    @cached_property
    def canonical_text(self) -> str:
        return text_of(self.document.root)

    def normalized_text(self) -> str:
        return text_of(self.document.root, sort=True)

    def formatted_text(self, form: str) -> str:
        return self.canonical_text

    def record_names(self) -> list[str]:
        root = self.document.root
        title = root.get("title") if isinstance(root, dict) else None
        return [title] if isinstance(title, str) else []

    def value_checker(self, indexes: Sequence[int]) -> Callable[[bytes], None]:
        """Numbers are read as IEEE doubles where they do not fit an integer."""
        validator = self.document.validator
        assert validator is not None

        def check(data: bytes) -> None:
            try:
                value = decode(data)
                if not validator.is_valid(value):
                    validator.validate(value)
            except (MsgspecError, ValueError, RecursionError) as problem:
                lines = str(problem).splitlines()
                raise ValueError(lines[0] if lines else type(problem).__name__) from None

        return check

    def value_decoder(self, indexes: Sequence[int]) -> Callable[[bytes], Raw]:
        """The text itself, which need not be valid: a reader wants to see what was written."""

        def decoded(data: bytes) -> Raw:
            try:
                return decode(data, type=Raw)
            except MsgspecError as problem:
                raise ValueError(f"not JSON: {problem}") from None

        return decoded

    def value_encoder(self, message: str) -> Callable[[bytes], bytes]:
        """The text as it came, if it is valid."""
        refuse_message(message)
        check = self.value_checker(())

        def encode(text: bytes) -> bytes:
            check(text)
            return text

        return encode

    def differences(self, writer: "JsonSchema") -> Sequence[Difference]:
        return incompatibilities(self.document.place(), writer.document.place())
