"""Loads a pipeline file: YAML with topics, SQL, topics and tables.

Pure, apart from reading the file. Owns the shape of the file and its error messages. Invariant: no
key is accepted and ignored, and every mistake is reported with its place in the file.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from millstream.spark.errors import InvalidOption
from millstream.spark.options.kafka import nearest
from millstream.spark.options.sink import sink_options
from millstream.spark.options.source import source_options
from millstream.spark.pipelines.failures import InvalidPipeline

FLOWS_MAX = 100
STATE_DIRECTORY = ".millstream"
BOOTSTRAP = "localhost:9092"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_PLACE = re.compile(r"^(?P<problem>.*?) - at `(?P<place>[^`]*)`$", re.DOTALL)
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")
_T = TypeVar("_T")

Option: TypeAlias = str | int | float | bool


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No field that is not known."""


class Watermark(_Strict, frozen=True, kw_only=True):
    """How late rows may come: `column` is SQL for a time, `delay` such as `10 minutes`."""

    column: str = "record.timestamp"
    delay: str


class Source(_Strict, frozen=True, kw_only=True):
    """Topics to read. With a schema, values are JSON and their fields are columns."""

    topic: str | None = None
    topics: list[str] = []
    starting: Literal["earliest", "latest"] = "earliest"  # For the first run only.
    trigger_records_max: int | None = None
    schema: str | None = None  # DDL of the JSON value.
    # Of values that are not of the schema.
    malformed: Literal["fail", "skip", "keep", "dlq"] = "fail"
    watermark: Watermark | None = None
    options: dict[str, Option] = {}  # Of the source, as in docs/spark/source-options.md.

    def __post_init__(self) -> None:
        if (self.topic is None) == (not self.topics):
            raise InvalidOption("a source has one of topic and topics")
        if self.schema is None and self.malformed != "fail":
            raise InvalidOption(
                f"malformed is {self.malformed}, which means nothing without schema"
            )
        if self.watermark is not None and self.schema is None:
            raise InvalidOption("a watermark needs a schema")
        named = {name.lower(): text for name, text in texts(self.options).items()}
        if named.get("onerror") == "dlq":
            raise InvalidOption(
                "option onError is dlq: the source would write dead letters apart from the flow's "
                "rows. Use schema and malformed: dlq, which writes both as one batch"
            )
        _check(self.reading(BOOTSTRAP, "group"), is_source=True)

    @property
    def all_topics(self) -> list[str]:
        return self.topics if self.topic is None else [self.topic]

    def own_options(self) -> dict[str, str]:
        limit = self.trigger_records_max
        return {
            "startingOffsets": self.starting,
            "includeHeaders": "true",
            **({} if limit is None else {"maxOffsetsPerTrigger": str(limit)}),
            **texts(self.options),
        }

    def reading(self, bootstrap: str, group: str) -> dict[str, str]:
        """All options of the source, as it will get them."""
        return {
            "kafka.bootstrap.servers": bootstrap,
            "kafka.group.id": group,
            "subscribe": ",".join(self.all_topics),
            **self.own_options(),
        }


class Sink(_Strict, frozen=True, kw_only=True):
    """A topic, or a table: a directory of files."""

    topic: str | None = None
    key: str | None = None  # The column that becomes the key.
    table: str | None = None
    format: Literal["json", "raw", "parquet", "orc", "csv"] | None = None
    partition_by: list[str] = []
    output_mode: Literal["append", "update", "complete"] = "append"
    options: dict[str, Option] = {}

    def __post_init__(self) -> None:
        if (self.topic is None) == (self.table is None):
            raise InvalidOption("a sink has one of topic and table")
        allowed = ("json", "raw") if self.topic is not None else ("parquet", "json", "orc", "csv")
        if self.format not in (None, *allowed):
            where = "topic" if self.topic is not None else "table"
            raise InvalidOption(
                f"format of a {where} is {self.format}, expected one of {', '.join(allowed)}"
            )
        if self.table is not None and self.key is not None:
            raise InvalidOption("key is only for a topic")
        if self.topic is not None and self.partition_by:
            raise InvalidOption("partition_by is only for a table")
        if self.format == "raw" and self.key is not None:
            raise InvalidOption("format is raw: name the key in the SQL, as column key")
        if self.table is not None and self.output_mode != "append":
            raise InvalidOption(f"output_mode is {self.output_mode}, a table is only appended to")
        if self.topic is not None:
            _check(self.writing(BOOTSTRAP), is_source=False)

    def writing(self, bootstrap: str) -> dict[str, str]:
        """All options of the topic's sink, as it will get them."""
        assert self.topic is not None
        return {"kafka.bootstrap.servers": bootstrap, "topic": self.topic, **texts(self.options)}


class Flow(_Strict, frozen=True, kw_only=True, rename={"parameters": "with"}):
    """From topics through SQL to a topic or a table, or a ready-made pipeline with parameters."""

    name: str
    source: Source | None = None
    sql: str | list[str] = []  # Steps: each sees the rows before it as `source`.
    sink: Sink | None = None
    use: str | None = None
    parameters: dict[str, Any] = {}  # Of the ready-made pipeline, which checks them.

    def __post_init__(self) -> None:
        _check_name("name", self.name)
        if self.source is not None and self.source.malformed == "dlq":
            self._check_dead_letters()
        if self.use is None:
            missing = [n for n in ("source", "sink") if getattr(self, n) is None]
            if missing:
                raise InvalidOption(
                    f"flow {self.name} has no {missing[0]}: a flow has source, sql and sink, or "
                    "use and with"
                )
            if self.parameters:
                raise InvalidOption(f"flow {self.name} has with, which means nothing without use")
        elif self.source is not None or self.sink is not None or self.sql:
            raise InvalidOption(
                f"flow {self.name} uses {self.use}, which knows its source, sql and sink: say them "
                "in with"
            )

    def _check_dead_letters(self) -> None:
        """Dead letters are written by the flow's own sink, in the batch of its other rows."""
        if self.sink is not None and (self.sink.topic is None or self.sink.output_mode != "append"):
            raise InvalidOption(
                f"flow {self.name}: malformed is dlq, which needs a sink with a topic and "
                "output_mode append: dead letters and rows are written as one batch"
            )

    @property
    def steps(self) -> list[str]:
        return [self.sql] if isinstance(self.sql, str) else self.sql


class Example(_Strict, frozen=True, kw_only=True):
    """Rows in, rows out: a test of one flow."""

    name: str
    flow: str
    input: dict[str, list[dict[str, Any]]]  # By topic: key, value, timestamp, headers, ...
    expected: list[dict[str, Any]]  # The columns that are given are compared.


class Spec(_Strict, frozen=True, kw_only=True):
    """A pipeline. Flows run in order, or side by side when continuous."""

    name: str
    flows: list[Flow]
    bootstrap: str = BOOTSTRAP
    state: str = STATE_DIRECTORY
    kafka: dict[str, Option] = {}  # How brokers are reached, such as security.protocol.
    trigger_seconds: float = 1.0
    tests: list[Example] = []

    def __post_init__(self) -> None:
        _check_name("name", self.name)
        names = [flow.name for flow in self.flows]
        twice = sorted({name for name in names if names.count(name) > 1})
        if not 1 <= len(names) <= FLOWS_MAX:
            raise InvalidOption(f"there are {len(names)} flows, expected 1 to {FLOWS_MAX}")
        if twice:
            raise InvalidOption(f"there are two flows with the name {twice[0]}")
        if self.trigger_seconds < 0:
            raise InvalidOption(f"trigger_seconds is {self.trigger_seconds}, it can't be negative")
        for example in self.tests:
            if example.flow not in names:
                raise InvalidOption(
                    f"test {example.name!r} is of flow {example.flow!r}, there are "
                    f"{', '.join(names)}"
                )

    @property
    def client_options(self) -> dict[str, str]:
        return {f"kafka.{name}": text for name, text in texts(self.kafka).items()}


def load(path: Path) -> Spec:
    """Read a file and check it; raises `InvalidPipeline` with one sentence."""
    content = parsed_yaml(path)
    converted(content, Spec, path.name)
    assert isinstance(content, dict)
    tests = list(content.get("tests", []))
    for file in sorted((path.parent / "tests").glob("*.y*ml")):
        examples = parsed_yaml(file)
        converted(examples, list[Example], f"tests/{file.name}")
        assert isinstance(examples, list)
        tests += examples
    return converted({**content, "tests": tests}, Spec, path.name)


def parsed_yaml(path: Path) -> object:
    import yaml  # Installed with the extra `spark` only.

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InvalidPipeline(f"can't read {path}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidPipeline(f"{path.name} is not text in UTF-8") from None
    except yaml.YAMLError as problem:
        raise InvalidPipeline(
            f"{path.name} is not YAML: {' '.join(str(problem).split())}"
        ) from None


def converted(content: object, kind: type[_T], where: str) -> _T:
    """`content` as a value of this type, or one sentence that names the place."""
    try:
        return msgspec.convert(content, kind, strict=False)
    except msgspec.ValidationError as problem:
        match = _PLACE.match(str(problem))
        text, place = (match["problem"], match["place"]) if match else (str(problem), "$")
        place = place.removeprefix("$").lstrip(".")
        unknown = _UNKNOWN.search(text)
        if unknown is not None:
            name = unknown["name"]
            text = f"there is no {name} here; {nearest(name, _field_names(kind))}"
        raise InvalidPipeline(f"{where}{', ' + place if place else ''}: {text}") from None


def texts(options: Mapping[str, Option]) -> dict[str, str]:
    """Options as Spark takes them: all text, with `true` for true."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }


def _field_names(kind: object) -> list[str]:
    """All that may stand in this type, or in those of this module if it is one of them."""
    ours = (Spec, Flow, Source, Watermark, Sink, Example)
    is_ours = kind in (Spec, list[Example])
    kinds = ours if is_ours else (kind,)
    return [field.encode_name for struct in kinds for field in msgspec.structs.fields(struct)]  # type: ignore[arg-type]  # Structs all.


def _check_name(place: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidOption(f"{place} is {name!r}, expected 1 to 100 of A-Z a-z 0-9 _ -")


def _check(options: Mapping[str, str], *, is_source: bool) -> None:
    if is_source:
        source_options(options, is_streaming=True)
    else:
        sink_options({**options, "checkpointLocation": "here"}, is_streaming=True)
