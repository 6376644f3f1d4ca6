"""Checks records against their schemas before they are written, where the topic asks for it.

A record names its schema by a zero byte and an id before its bytes, or by a GUID in a header. Mode
`id` asks whether a live version of the record's subject has that id; `full` also reads the bytes to
their end. Answers about ids are kept until the registry changes, checkers by schema.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from millstream.codec.records import Record
from millstream.engine.schemas.log import RegistryLog
from millstream.engine.schemas.parsing import SchemaParser
from millstream.errors import RequestError
from millstream.internal_topics.registry import DEFAULT_CONTEXT, RegistryState
from millstream.internal_topics.schemas import SchemaText
from millstream.schemas.definition import SchemaType
from millstream.settings import SchemaCheck, SubjectStrategy, TopicSettings, Unframed

ID_MAGIC, GUID_MAGIC = 0, 1
FRAME_BYTES, GUID_BYTES = 5, 17
VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"
INDEXES_MAX = 100  # Messages inside of messages, by which a Protobuf record names its own.
FIRST: tuple[tuple[int, ...], int] = ((0,), 1)  # The first message, and where its bytes begin.
STEP_RECORDS = 100  # Checked between two turns of the loop: about a millisecond at most.
CHECKERS_MAX = 1_000
ANSWERS_MAX = 10_000

Checker = Callable[[bytes], None]
Named = int | UUID  # An id, or a GUID.


class Part(NamedTuple):
    """The value or the key of records, and how a topic wants it checked."""

    is_key: bool
    check: SchemaCheck
    strategy: SubjectStrategy
    takes_unframed: bool

    @property
    def header(self) -> str:
        return KEY_HEADER if self.is_key else VALUE_HEADER

    @property
    def word(self) -> str:
        return "key" if self.is_key else "value"


def parts_of(settings: TopicSettings) -> list[Part]:
    """What a topic wants checked."""
    strategy = settings.schema_subject_strategy
    unframed = settings.schema_validation_unframed is Unframed.ACCEPT
    checks = ((False, settings.schema_validation_value), (True, settings.schema_validation_key))
    return [
        Part(is_key, check, strategy, unframed)
        for is_key, check in checks
        if check is not SchemaCheck.OFF
    ]


class _Answer(NamedTuple):
    """What is known of an id under a topic: why it is refused, or how its bytes are checked."""

    problem: str
    checker: Checker | None = None


class RecordValidation:
    def __init__(self, log: RegistryLog, parser: SchemaParser) -> None:
        self._log = log
        self._parser = parser
        self._answers: dict[tuple[str, Part, Named], _Answer] = {}
        # The registry that the answers are of, and its revision.
        self._answered_by: RegistryState | None = None
        self._answered_at = -1
        self._checkers: OrderedDict[int, Checker] = OrderedDict()  # Ids are never used again.

    def problems_now(
        self, topic: str, settings: TopicSettings, records: Sequence[Record]
    ) -> dict[int, str] | None:
        """Why records are refused, by their place; None if something has to be waited for."""
        state = self._log.recent_state()
        if state is None or self._unanswered(state, topic, settings, records):
            return None
        problems: dict[int, str] = {}
        for part in parts_of(settings):
            for _ in self._check(topic, part, records, problems):
                pass
        return problems

    async def prepare(self, topic: str, settings: TopicSettings, records: Sequence[Record]) -> None:
        """Learn all that is needed to check these records."""
        state = await self._log.state()
        while unanswered := self._unanswered(state, topic, settings, records):
            for part, named in unanswered:
                answer = await self._answer(state, topic, part, named)
                if len(self._answers) >= ANSWERS_MAX:
                    self._answers.clear()
                self._answers[topic, part, named] = answer
            if len(unanswered) >= ANSWERS_MAX:
                return  # More ids than can be kept: those that are not are refused.
            state = await self._log.state()

    def steps(
        self, topic: str, settings: TopicSettings, records: Sequence[Record]
    ) -> Generator[None, None, dict[int, str]]:
        """The same as `problems_now`, after `prepare`, in short steps."""
        problems: dict[int, str] = {}
        for part in parts_of(settings):
            yield from self._check(topic, part, records, problems)
        return problems

    # -- parts -----------------------------------------------------------------------------------

    def _unanswered(
        self,
        state: RegistryState,
        topic: str,
        settings: TopicSettings,
        records: Sequence[Record],
    ) -> list[tuple[Part, Named]]:
        if state is not self._answered_by or state.revision != self._answered_at:
            self._answers.clear()
            self._answered_by, self._answered_at = state, state.revision
        missing: list[tuple[Part, Named]] = []
        for part in parts_of(settings):
            names = {named for record in records if (named := name_of(record, part)) is not None}
            missing += [
                (part, named) for named in names if (topic, part, named) not in self._answers
            ]
        return missing

    def _check(
        self, topic: str, part: Part, records: Iterable[Record], problems: dict[int, str]
    ) -> Generator[None, None, None]:
        answers = self._answers
        for index, record in enumerate(records):
            if index % STEP_RECORDS == STEP_RECORDS - 1:
                yield
            data = record.key if part.is_key else record.value
            if data is None or index in problems:
                continue
            named = name_of(record, part)
            if named is None:
                if not part.takes_unframed:
                    problems[index] = f"has a {part.word} that names no schema"
                continue
            answer = answers.get((topic, part, named))
            if answer is None:
                problems[index] = f"has a {part.word} whose schema could not be looked up"
            elif answer.problem:
                problems[index] = answer.problem
            elif answer.checker is not None:
                try:
                    answer.checker(payload_of(record, part, named))
                except ValueError as problem:
                    problems[index] = f"has a {part.word} that is none of schema {named}: {problem}"

    async def _answer(self, state: RegistryState, topic: str, part: Part, named: Named) -> _Answer:
        number = named if isinstance(named, int) else _number(state, named)
        schema = None if number is None else state.schema(DEFAULT_CONTEXT, number)
        if number is None or schema is None:
            return _Answer(f"has a {part.word} of schema {named}, which does not exist")
        try:
            subjects = await self._subjects(state, topic, part, schema)
            if not any(state.has_live(subject, number) for subject in subjects):
                return _Answer(
                    f"has a {part.word} of schema {named}, which is no version of "
                    f"{' or '.join(map(repr, subjects))}"
                )
            if part.check is SchemaCheck.ID:
                return _Answer("")
            return _Answer("", await self._checker(state, number, schema))
        except (RequestError, ValueError) as problem:
            return _Answer(f"has a {part.word} of schema {named}, which cannot be used: {problem}")

    async def _subjects(
        self, state: RegistryState, topic: str, part: Part, schema: SchemaText
    ) -> list[str]:
        """The subjects that a schema may stand under; a Protobuf file has several messages."""
        if part.strategy is SubjectStrategy.TOPIC:
            return [f"{topic}-{part.word}"]
        parsed = await self._parser.parse_known(state, DEFAULT_CONTEXT, schema)
        names = parsed.record_names()
        if part.strategy is SubjectStrategy.RECORD:
            return names
        return [f"{topic}-{name}" for name in names]

    async def _checker(self, state: RegistryState, number: int, schema: SchemaText) -> Checker:
        checker = self._checkers.get(number)
        if checker is not None:
            self._checkers.move_to_end(number)
            return checker
        parsed = await self._parser.parse_known(state, DEFAULT_CONTEXT, schema)
        if schema.type is SchemaType.PROTOBUF:
            checker = ByMessage(parsed.value_checker)
        else:
            checker = parsed.value_checker(())
        self._checkers[number] = checker
        if len(self._checkers) > CHECKERS_MAX:
            self._checkers.popitem(last=False)
        return checker


T = TypeVar("T")


class ByMessage(Generic[T]):
    """Reads Protobuf messages behind the indexes that lead to their type in its file.

    `reader_of` makes a reader of one type: a check, or a decoder.
    """

    def __init__(self, reader_of: Callable[[Sequence[int]], Callable[[bytes], T]]) -> None:
        self._reader_of = reader_of
        self._readers: dict[tuple[int, ...], Callable[[bytes], T]] = {}

    def __call__(self, data: bytes) -> T:
        indexes, at = FIRST if data[:1] == b"\0" else read_indexes(data)
        reader = self._readers.get(indexes)
        if reader is None:
            reader = self._readers[indexes] = self._reader_of(indexes)
        return reader(data[at:])


def read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes of a message as zigzag varints behind their count, and where they end."""
    count, at = _zigzag(data, 0)
    if not 0 < count <= INDEXES_MAX:
        raise ValueError(f"{count} message indexes")
    indexes: list[int] = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("message indexes that do not end")


def name_of(record: Record, part: Part) -> Named | None:
    """The schema that a record names; None if it names none."""
    return name_in(record, record.key if part.is_key else record.value, part.header)


def name_in(record: Record, data: bytes | None, header: str) -> Named | None:
    if data is None:
        return None
    if record.headers:
        named = _header(record, header)
        if named is not None:
            return UUID(bytes=named[1:GUID_BYTES])
    if len(data) >= FRAME_BYTES and data[0] == ID_MAGIC:
        return int.from_bytes(data[1:FRAME_BYTES], "big")
    return None


def payload_of(record: Record, part: Part, named: Named) -> bytes:
    """What the schema describes: behind the frame, or the bytes with the indexes of the header."""
    data = record.key if part.is_key else record.value
    assert data is not None
    return payload_in(record, data, part.header, named)


def payload_in(record: Record, data: bytes, header: str, named: Named) -> bytes:
    if isinstance(named, int):
        return data[FRAME_BYTES:]
    value = _header(record, header)
    return data if value is None else value[GUID_BYTES:] + data


def _header(record: Record, header: str) -> bytes | None:
    for name, value in record.headers:
        if name == header and value is not None and len(value) >= GUID_BYTES:
            return value if value[0] == GUID_MAGIC else None
    return None


def _number(state: RegistryState, name: UUID) -> int | None:
    return next(
        (each for context, each in state.with_guid(name) if context == DEFAULT_CONTEXT), None
    )
