"""Requests that only Millstream answers, over connections of our own.

Owns how they are asked and what an error of theirs becomes; who asks knows the bytes. The one thing
to know: a broker tells our clients which of them it serves, so any other is told from Millstream
before it is asked something that it would hang up on.
"""

from collections.abc import Callable
from time import monotonic, sleep

from millstream import __version__
from millstream.client._librdkafka.link import Link
from millstream.client.answers import NO_TAGS, Reader, text, understanding
from millstream.client.errors import KIND_OF, Busy, ClientError, NotSupported, Refused, Unreachable
from millstream.client.models import BrokerNode
from millstream.client.secured import Connection

API_VERSIONS, API_VERSIONS_VERSION = 18, 3
TIMED_OUT = 7
# A leader is being elected, or loads what it needs to know: that takes a moment after a start.
PASSING = frozenset({5, 6, 14, 15, 16})
RETRY_S = 0.1


class OwnRequests:
    """Threads may share it."""

    def __init__(self, link: Link, find_node: Callable[[], BrokerNode]) -> None:
        self._link = link
        self._find_node = find_node
        self._node: BrokerNode | None = None  # Where one answered the last time.
        self._served: frozenset[int] = frozenset()  # Not known yet.

    def ask(self, api_key: int, body: bytes, *, what: str, doing: str) -> Reader:
        """What a broker answers behind the error; raises if there is one.

        `what` says in the plural what it is about, for who hears that it is not served.
        """
        deadline = monotonic() + self._link.timeout_s
        while True:
            answer = Reader(self._exchanged(api_key, body, what, doing))
            with understanding(doing):
                answer.tags()  # Of the header.
                code, message = answer.number(">h"), answer.maybe_text()
            if not code:
                return answer
            if code not in PASSING or monotonic() > deadline:
                raise _problem(code, message or "", doing)
            sleep(RETRY_S)

    def _exchanged(self, api_key: int, body: bytes, what: str, doing: str) -> bytes:
        node = self._node or self._find_node()
        try:
            answer = self._exchange(node, api_key, body, what, doing)
        except Unreachable:
            self._node = None
            raise
        self._node = node
        return answer

    def _exchange(
        self, node: BrokerNode, api_key: int, body: bytes, what: str, doing: str
    ) -> bytes:
        limit_s = self._link.timeout_s
        with Connection(node, self._link.config(), doing=doing, timeout_s=limit_s) as broker:
            if api_key not in self._served:
                self._served = _served_by(broker)
            if api_key not in self._served:
                raise NotSupported(
                    f"{what} are not supported by the broker at {self._link.address}; "
                    "Millstream does it.",
                    code="UNSUPPORTED_VERSION",
                )
            return broker.ask(api_key, 0, body + NO_TAGS, is_flexible=True)


def _served_by(broker: Connection) -> frozenset[int]:
    body = text("millstream") + text(__version__) + NO_TAGS
    answer = Reader(broker.ask(API_VERSIONS, API_VERSIONS_VERSION, body, is_flexible=True))
    with understanding("ask what the broker serves"):
        if answer.number(">h"):
            return frozenset()  # It does not know this version, so it knows nothing of ours either.
        return frozenset(key for key, *_ in answer.array(lambda: answer.numbers(">hhh")))


def _problem(code: int, message: str, doing: str) -> ClientError:
    from confluent_kafka import KafkaError

    error = KafkaError(code)
    name = error.name()
    # By this the broker says that it has enough to do, with the same request of another for one.
    kind = Busy if code == TIMED_OUT else KIND_OF.get(name, Refused)
    said = message or error.str()
    return kind(f"cannot {doing}: {said}.", code=name, retriable=kind is Busy or error.retriable())
