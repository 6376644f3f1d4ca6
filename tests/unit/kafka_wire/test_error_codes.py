"""Every error of ours has a code of Kafka's, and the codes are Kafka's."""

from kio.schema.errors import ErrorCode as KioCode

from millstream.errors import Denied, NotLeader, RequestError, UnknownTopic
from millstream.errors.groups import MemberIdRequired, RebalanceInProgress
from millstream.kafka_wire.error_codes import CODES, RETRIABLE, ErrorCode, code_for
from millstream.protocols.http.problems import HttpProblem

# Kafka's clients know what to do after these, though their class is not called retriable.
HANDLED_APART = {MemberIdRequired, RebalanceInProgress}


def descendants(kind: type) -> set[type]:
    return {kind}.union(*(descendants(child) for child in kind.__subclasses__()))  # type: ignore[var-annotated]


def test_every_request_error_has_a_code() -> None:
    ours = {
        kind
        for kind in descendants(RequestError) - {RequestError}
        if kind.__module__.startswith("millstream")  # Tests have errors of their own.
    }

    # HTTP's own refusals are raised by its handlers alone, and never reach another protocol.
    assert ours == set(CODES) | {HttpProblem}


def test_retriable_errors_have_retriable_codes() -> None:
    lost = {kind for kind, code in CODES.items() if kind.retriable and code not in RETRIABLE}

    assert lost == HANDLED_APART


def test_the_codes_are_those_of_kafka() -> None:
    ours = {code.name: (code.value, code in RETRIABLE) for code in ErrorCode}
    theirs = {code.name.upper(): (int(code), code.retriable) for code in KioCode}

    assert {name: theirs.get(name) for name in ours} == ours


def test_a_denial_says_what_kind_of_thing_was_denied() -> None:
    codes = {
        kind: code_for(Denied("eve", "read", f"{kind}:x")).value
        for kind in ("topic", "group", "transactional_id", "cluster", "user")
    }

    assert codes == {"topic": 29, "group": 30, "transactional_id": 53, "cluster": 31, "user": 31}


def test_an_error_becomes_its_code() -> None:
    assert code_for(NotLeader("orders-0", None)) == 6
    assert code_for(UnknownTopic("orders")) == 3


def test_an_error_without_a_code_is_still_answered() -> None:
    class Novelty(RequestError): ...

    assert code_for(Novelty()) == -1
