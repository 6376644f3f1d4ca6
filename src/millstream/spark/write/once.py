"""Writes the batches of `foreachBatch` exactly once, and gives the sink its output mode `update`.

A batch of `foreachBatch` is an ordinary DataFrame, so Spark does not tell a sink which batch it is.
`write_once` does, with the options transactionalIdPrefix and batchId. Spark's API for sinks in
Python has no output mode `update` (the JVM's `PythonWriteBuilder` is no
`SupportsStreamingUpdateAsAppend`), so `enable_update_mode` has such queries run by `foreachBatch`.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

from millstream.spark.errors import InvalidOption, QueryStopped
from millstream.spark.source_environment import FORMAT, add_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

NAMES_MAX = 1_000  # Of writes that are remembered, to notice two under one name.

# Properties that Spark sets in the thread that runs a batch.
_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
# Spark knows by these words in the error of a batch that its own interruption caused it. Its search
# takes stack for each character: with Java's whole trace after them, the stack overflows.
_IN_JAVA = "py4j.protocol.Py4JJavaError: An error occurred while calling"
_INTERRUPTION = re.compile(
    r"java\.(?:lang\.Interrupted|io\.InterruptedIO|nio\.channels\.ClosedByInterrupt)Exception"
)

_last_writes: OrderedDict[str, tuple[str, int]] = OrderedDict()  # By name: run and batch.


def write_once(
    batch: "DataFrame",
    batch_id: int,
    *,
    topic: str | None = None,
    bootstrap: str | None = None,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Write one batch of `foreachBatch`; a batch that was committed before is not written again.

    The broker knows the write by `name`, which is the id of the query unless it is given, and by
    the topic. Raises `InvalidOption` for two writes of a batch under the same name and topic: the
    second one would count as written.
    """
    chosen = {key.lower(): str(value) for key, value in (options or {}).items()}
    if topic is not None:
        chosen["topic"] = topic
    if bootstrap is not None:
        chosen["kafka.bootstrap.servers"] = bootstrap
    name = name or chosen.pop("transactionalidprefix", None) or _property(batch, _QUERY_ID)
    if name is None:
        raise InvalidOption(
            "write_once does not know which query this is (Spark says so only inside of "
            "foreachBatch, and not over Spark Connect): give it a name that lasts, as in "
            'write_once(batch, batch_id, name="orders-to-totals")'
        )
    chosen |= {"transactionalidprefix": name, "batchid": str(batch_id)}
    run = _property(batch, _RUN_ID)
    place = f"{name}/{chosen.get('topic', '')}"
    if run is not None and _last_writes.get(place) == (run, batch_id):
        raise InvalidOption(
            f"batch {batch_id} is written twice under the name {name!r}, and the second write "
            "would count as done: give each write of a batch a name of its own"
        )
    _save(batch.write.format(FORMAT).mode("append").options(**chosen))
    if run is not None:
        _last_writes[place] = (run, batch_id)
        _last_writes.move_to_end(place)
        while len(_last_writes) > NAMES_MAX:
            _last_writes.popitem(last=False)


def _save(writer: "DataFrameWriter") -> None:
    """Write; raise `QueryStopped` if Spark interrupts it because its query is stopped."""
    try:
        writer.save()
    except Exception as problem:  # Of py4j, which is not there over Spark Connect.
        is_javas = f"{type(problem).__module__}.{type(problem).__name__}" in _IN_JAVA
        interruption = _INTERRUPTION.search(str(problem)) if is_javas else None
        if interruption is None:
            raise
        raise QueryStopped(f"{_IN_JAVA} save: {interruption[0]}") from None


def _property(batch: "DataFrame", name: str) -> str | None:
    from pyspark.errors import PySparkException

    try:
        value = batch.sparkSession.sparkContext.getLocalProperty(name)
    except (AttributeError, PySparkException):
        return None  # Spark Connect has no context.
    return None if value is None else str(value)


# -- output mode update ----------------------------------------------------------------------------


class _Choices:
    """The format, output mode and options of one `DataStreamWriter`, as its methods were called."""

    def __init__(self) -> None:
        self.format: str | None = None
        self.output_mode: str | None = None
        self.options: dict[str, str] = {}

    @property
    def is_update(self) -> bool:
        is_ours = (self.format or "").lower() == FORMAT
        return is_ours and (self.output_mode or "").lower() == "update"


def enable_update_mode() -> None:
    """Let `writeStream.format("millstream").outputMode("update")` work in this process.

    Such a query becomes a `foreachBatch` of `write_once` when it is started; all others are left
    as they are. Queries that start at the same time do not disturb each other from then on, see
    `source_environment`. `millstream.spark.session` calls this; it may be called again.
    """
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    if not hasattr(DataStreamWriter.start, "__wrapped__"):
        _wrap(DataStreamWriter)


# Any: methods of Spark's, with the arguments of its own.
def _wrap(writer: Any) -> None:
    start, format_, mode = writer.start, writer.format, writer.outputMode
    option, options, to_table = writer.option, writer.options, writer.toTable

    @wraps(format_)
    def chosen_format(self: Any, source: str) -> Any:
        _choices(self).format = source
        return format_(self, source)

    @wraps(mode)
    def chosen_mode(self: Any, outputMode: str) -> Any:  # noqa: N803  # Spark's name.
        _choices(self).output_mode = outputMode
        return mode(self, outputMode)

    @wraps(option)
    def chosen_option(self: Any, key: str, value: Any) -> Any:
        _note(self, {key: value})
        return option(self, key, value)

    @wraps(options)
    def chosen_options(self: Any, **named_options: Any) -> Any:
        _note(self, named_options)
        return options(self, **named_options)

    @wraps(start)
    def started(
        self: Any,
        path: str | None = None,
        format: str | None = None,  # noqa: A002  # Spark's name.
        outputMode: str | None = None,  # noqa: N803  # Spark's name.
        partitionBy: Any = None,  # noqa: N803  # Spark's name.
        queryName: str | None = None,  # noqa: N803  # Spark's name.
        **named_options: Any,
    ) -> Any:
        if format is not None:
            self.format(format)
        if outputMode is not None:
            self.outputMode(outputMode)
        self.options(**named_options)
        add_names(self._spark)
        choices = _choices(self)
        if choices.is_update:
            self.foreachBatch(_upserts(choices.options))
        return start(self, path=path, partitionBy=partitionBy, queryName=queryName)

    @wraps(to_table)
    def started_to_table(self: Any, *arguments: Any, **named: Any) -> Any:
        add_names(self._spark)
        return to_table(self, *arguments, **named)

    writer.format, writer.outputMode, writer.start = chosen_format, chosen_mode, started
    writer.option, writer.options, writer.toTable = chosen_option, chosen_options, started_to_table


def _upserts(options: Mapping[str, str]) -> Any:
    """The function of a batch that writes it, with the options of its query checked now."""
    from millstream.spark.options.sink import sink_options

    sink_options(options, is_streaming=True)
    written = {
        name: text
        for name, text in options.items()
        if name.lower() not in ("checkpointlocation", "queryname")
    }

    def write(batch: "DataFrame", batch_id: int) -> None:
        write_once(batch, batch_id, options=written)

    return write


def _choices(writer: Any) -> _Choices:
    choices = getattr(writer, "_millstream_choices", None)
    if choices is None:
        choices = writer._millstream_choices = _Choices()
    assert isinstance(choices, _Choices)
    return choices


def _note(writer: Any, named_options: Mapping[str, Any]) -> None:
    known = _choices(writer).options
    for name, value in named_options.items():
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            known[name] = text
