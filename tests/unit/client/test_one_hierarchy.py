"""All errors that a program can catch derive from one class, and from Python's of that sense."""

import pickle

import pytest

import millstream
from millstream import benchmark, client, errors, testing
from millstream.client import errors as client_errors
from millstream.errors import delayed, deliveries, groups, views
from millstream.spark import errors as spark_errors
from millstream.spark.pipelines import failures

MODULES = [
    *(benchmark, client, client_errors, testing, spark_errors, failures),
    *(errors, delayed, deliveries, groups, views),
]


def test_every_public_error_is_a_millstream_error() -> None:
    raised = {
        value
        for module in MODULES
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Exception) and not name.startswith("_")
    }

    assert [error for error in raised if not issubclass(error, millstream.MillstreamError)] == []
    assert {client.NotFound, errors.UnknownTopic, spark_errors.DataLoss} <= raised


@pytest.mark.parametrize(
    ("kind", "python"),
    [
        (client.TimedOut, TimeoutError),
        (client.Unreachable, ConnectionError),
        (client.Denied, PermissionError),
        (client.NotFound, LookupError),
        (errors.TimedOut, TimeoutError),
        (errors.Denied, PermissionError),
        (errors.UnknownTopic, LookupError),
    ],
)
def test_an_error_is_what_python_calls_the_same(
    kind: type[Exception], python: type[Exception]
) -> None:
    assert issubclass(kind, python)


@pytest.mark.parametrize(
    "kind", [client.TimedOut, client.Unreachable, client.Denied, client.NotFound, client.Refused]
)
def test_an_error_keeps_its_words_also_over_a_process_border(
    kind: type[client.ClientError],
) -> None:
    problem = pickle.loads(pickle.dumps(kind("what happened", code="X", retriable=True)))

    assert (str(problem), problem.code, problem.retriable) == ("what happened", "X", True)


def test_errors_of_the_broker_keep_their_words() -> None:
    assert str(errors.Denied("ann", "read", "topic x")) == "ann may not read topic x"
    assert str(errors.UnknownTopic("x-0")) == "there is no topic or partition x-0"
    assert str(errors.TimedOut("late")) == "late"
