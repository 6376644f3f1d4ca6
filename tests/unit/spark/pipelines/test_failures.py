"""Of what Spark says when something fails, one sentence is left."""

import pytest

from millstream.spark.pipelines.failures import SENTENCE_LENGTH_MAX, reason_of, short_reason

IN_A_WORKER = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] \
Failed when Python streaming data source perform initialOffset: Traceback (most recent call last):
  File "/x/pyspark/sql/streaming/python_streaming_source_runner.py", line 267, in main
    initial_offset_func(reader, outfile)
millstream.spark.errors.UnknownPartition: there is no topic or partition nope
 SQLSTATE: 38000
	at org.apache.spark.sql.errors.QueryExecutionErrors$.x(QueryExecutionErrors.scala:1890)
=== Streaming Query ===
Identifier: demo/n [id = e64c1757, runId = 844c578c]
Current State: ACTIVE
"""
WRAPPED = """\
Job aborted: Traceback (most recent call last):
  File "a.py", line 1, in read
millstream.spark.errors.DataLoss: records are gone. Some data may have been missed

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in main
_pickle.PicklingError: Could not serialize object
"""
OTHER_CODE = """\
boom Traceback (most recent call last):
  File "b.py", line 2, in main
ZeroDivisionError: division by zero
"""
COLUMN = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `nope` \
cannot be resolved. Did you mean one of the following? [`key`, `topic`]. SQLSTATE: 42703; line 1 \
pos 0;
'Project [unresolvedalias(('nope + 1))]
+- SubqueryAlias source
"""
SYNTAX = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. SQLSTATE: 42601 (line 1, pos 0)

== SQL ==
selec 1
^^^
"""
TABLE = """\
[TABLE_OR_VIEW_NOT_FOUND] The table or view `nosuch` cannot be found. Verify the spelling.
Search path: [`system`.`builtin`].
If you did not qualify the name with a schema, do. SQLSTATE: 42P01; line 1 pos 14;
'Project [*]
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (IN_A_WORKER, "there is no topic or partition nope"),
        (WRAPPED, "records are gone. Some data may have been missed"),
        (OTHER_CODE, "ZeroDivisionError: division by zero"),
        (
            COLUMN,
            (
                "A column, variable, or function parameter with name `nope` cannot be resolved. "
                "Did you mean one of the following? [`key`, `topic`]; line 1 pos 0"
            ),
        ),
        (SYNTAX, "Syntax error at or near 'selec'. (line 1, pos 0)"),
        (TABLE, "The table or view `nosuch` cannot be found. Verify the spelling."),
        ("plain words", "plain words"),
        ("", ""),
    ],
)
def test_one_sentence_is_left(text: str, sentence: str) -> None:
    assert short_reason(text) == sentence


def test_a_sentence_has_an_end() -> None:
    assert len(short_reason("x" * 10_000)) <= SENTENCE_LENGTH_MAX + 4


class JavaException:
    """An exception of the JVM, as Python holds it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def toString(self) -> str:  # Java's name.
        return self._text


class SparkFailure(Exception):
    """An exception of Spark's with the attributes that its Python part gives it."""

    def __init__(self, text: str, cause: "SparkFailure | None" = None) -> None:
        super().__init__(text)
        self._cause = cause
        self._origin = JavaException(f"java.lang.{text}")


def test_a_sentence_that_says_nothing_comes_with_its_cause() -> None:
    innermost = SparkFailure("IllegalStateException: Illegal size 5 of collection, expected 6")
    ended = "[STREAM_FAILED] Query [id = a] terminated with exception: {} SQLSTATE: XXKST"
    plain = SparkFailure(ended.format("the topic is gone"), innermost)
    opaque = SparkFailure(ended.format("Task not serializable"), SparkFailure("Outer", innermost))

    assert reason_of(plain) == "Query [id = a] terminated with exception: the topic is gone"
    assert reason_of(opaque) == (
        "Query [id = a] terminated with exception: Task not serializable "
        "(java.lang.IllegalStateException: Illegal size 5 of collection, expected 6)"
    )
