"""A Protobuf schema of a registry: its text, what it imports, how it reads others.

Made from descriptors: `protoc` makes them of a text, in a process of its own.
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from millstream.schemas.definition import DEPTH_MAX, Difference, InvalidSchema
from millstream.schemas.protobuf.compatibility import Types, incompatibilities
from millstream.schemas.protobuf.text import file_text


class ProtobufSchema:
    """`descriptors` is a serialized `FileDescriptorSet`: what is imported first, the file last.

    `source` is the text that it was made from. It is kept where the file has options that are
    defined in files: their values cannot be printed without the classes of these.
    """

    def __init__(self, descriptors: bytes, source: str = "") -> None:
        # The extra `protobuf` has it; nothing else of the broker needs it.
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.message import DecodeError

        try:
            files = FileDescriptorSet.FromString(descriptors).file
        except DecodeError as problem:
            raise InvalidSchema(f"not a set of descriptors: {problem}") from None
        if not files:
            raise InvalidSchema("a set of descriptors without a file")
        self.file: Any = files[-1]
        self._types = Types(list(files))
        self._files = files
        self._source = source if source and _has_own_options(self.file) else ""

    @cached_property
    def canonical_text(self) -> str:
        return self._source.strip() + "\n" if self._source else file_text(self.file)

    def normalized_text(self) -> str:
        return self.canonical_text if self._source else file_text(self.file, sort=True)

    def formatted_text(self, form: str) -> str:
        """`serialized`: the descriptor of the file, in base64."""
        if form != "serialized":
            return self.canonical_text
        return b64encode(self.file.SerializeToString()).decode()

    def record_names(self) -> list[str]:
        prefix = f".{self.file.package}." if self.file.package else "."
        own = {message.name for message in self.file.message_type}
        return [
            name.removeprefix(".")
            for name in self._types.messages
            if name.startswith(prefix) and name.removeprefix(prefix).partition(".")[0] in own
        ]

    def value_checker(self, indexes: Sequence[int]) -> Callable[[bytes], None]:
        return self._parser(indexes)[0]

    # Any: JSON.
    def value_decoder(self, indexes: Sequence[int]) -> Callable[[bytes], Any]:
        """As Protobuf's JSON mapping has it: numbers of 64 bits are texts."""
        from google.protobuf.json_format import MessageToDict

        parse, pool = self._parser(indexes)

        def decode(data: bytes) -> Any:
            message = parse(data)
            try:
                return MessageToDict(
                    message, preserving_proto_field_name=True, descriptor_pool=pool
                )
            except Exception as problem:  # The library raises many kinds, as of an unknown `Any`.
                raise ValueError(str(problem) or type(problem).__name__) from None

        return decode

    def value_encoder(self, message: str) -> Callable[[bytes], bytes]:
        """From Protobuf's JSON mapping; names of fields are taken in both spellings."""
        from google.protobuf.json_format import Parse, ParseError

        indexes = self._indexes(message) if message else (0,)
        message_class, pool = self._class(indexes)
        prefix = encode_indexes(indexes)

        def encode(text: bytes) -> bytes:
            try:
                value = Parse(
                    text, message_class(), descriptor_pool=pool, max_recursion_depth=DEPTH_MAX
                )
                data: bytes = value.SerializeToString()
            except (ParseError, ValueError, RecursionError, TypeError) as problem:
                raise ValueError(str(problem) or type(problem).__name__) from None
            return prefix + data

        return encode

    # Any: classes of the library, which has no types.
    def _class(self, indexes: Sequence[int]) -> tuple[Any, Any]:
        """The class of a message, and the pool of its types."""
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message_factory import GetMessageClass

        pool = DescriptorPool()
        for file in self._files:
            pool.Add(file)
        name = self._message_name(indexes)
        return GetMessageClass(pool.FindMessageTypeByName(name)), pool

    # Any: as above.
    def _parser(self, indexes: Sequence[int]) -> tuple[Callable[[bytes], Any], Any]:
        """A function from bytes to a message, and the pool of its types."""
        from google.protobuf.message import DecodeError

        message, pool = self._class(indexes)

        def parse(data: bytes) -> Any:
            try:
                return message.FromString(data)
            except DecodeError as problem:
                raise ValueError(str(problem)) from None

        return parse, pool

    def _message_name(self, indexes: Sequence[int]) -> str:
        """The full name of a message by its index in the file, and in the messages around it."""
        messages, names = self.file.message_type, [self.file.package] if self.file.package else []
        for index in indexes:
            if not 0 <= index < len(messages):
                raise ValueError(f"the schema has no message {list(indexes)}")
            names.append(messages[index].name)
            messages = messages[index].nested_type
        return ".".join(names)

    def _indexes(self, name: str) -> tuple[int, ...]:
        """Those that lead to a message by its name, with or without the package."""
        package = f"{self.file.package}." if self.file.package else ""
        messages, indexes = self.file.message_type, []
        for part in name.removeprefix(package).split("."):
            index = next((i for i, each in enumerate(messages) if each.name == part), None)
            if index is None:
                raise ValueError(f"the schema has no message {name[:200]!r}")
            indexes.append(index)
            messages = messages[index].nested_type
        return tuple(indexes)

    def differences(self, writer: "ProtobufSchema") -> Sequence[Difference]:
        return incompatibilities(self.file, writer.file, reads=self._types, writes=writer._types)


def _has_own_options(file: Any) -> bool:
    known = type(file)()
    known.CopyFrom(file)
    known.DiscardUnknownFields()
    return bool(known.ByteSize() != file.ByteSize())


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """As they stand before a message: zigzag varints behind their count; a zero for the first."""
    if tuple(indexes) == (0,):
        return b"\0"
    out = bytearray()
    for value in (len(indexes), *indexes):
        value <<= 1
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)
