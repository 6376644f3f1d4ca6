"""Requests that librdkafka does not offer, over connections of `kafka_client`.

Owns how librdkafka's settings become those of a connection, the retries while a leader is elected,
and the client errors for what goes wrong. A way to protect a connection that is not supported here
is refused by name, never left out. Requests of Millstream's own go only to a broker that serves
them: any other broker would close the connection.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.base_error import MillstreamError
from millstream.client._librdkafka.link import Link
from millstream.client.errors import (
    KIND_OF,
    Busy,
    ClientError,
    Denied,
    NotSupported,
    Refused,
    TimedOut,
    Unreachable,
    unreachable,
)

# Imported when the first request is made: programs that only produce and consume start sooner.
if TYPE_CHECKING:
    from millstream.client.models import BrokerNode, Transaction
    from millstream.kafka_client.connection import Connection
    from millstream.kafka_client.settings import ClientSettings, Credentials, Tls
    from millstream.kafka_wire.apis.admin import DescribeLogDirsResponse
    from millstream.kafka_wire.apis.millstream import OwnResponse
    from millstream.kafka_wire.apis.transactions import ListTransactionsResponse
    from millstream.kafka_wire.schema import Message

    _Response = TypeVar("_Response", bound=OwnResponse)
    _Answer = TypeVar("_Answer", bound=Message)
    _Checked = TypeVar("_Checked", ListTransactionsResponse, DescribeLogDirsResponse)

RETRY_S = 0.1
ANSWER_BYTES_MAX = 64 * 2**20
TIMED_OUT = 7
# A leader is being elected, or a coordinator is loading: that takes a moment after a start.
PASSING = frozenset({5, 6, 14, 15, 16})

# By `security.protocol`: whether there is TLS, and whether there is a login.
PROTOCOLS = {
    "plaintext": (False, False),
    "ssl": (True, False),
    "sasl_plaintext": (False, True),
    "sasl_ssl": (True, True),
}
_UNSUPPORTED_TLS = (
    *("ssl.crl.location", "ssl.engine.location", "ssl.providers", "ssl.certificate.pem"),
    *("ssl.ca.certificate.stores", "ssl.key.pem", "ssl.keystore.location", "ssl.cipher.suites"),
)

# librdkafka's settings: text, numbers, truths and callbacks.
Config = dict[str, Any]


class BrokerRequests:
    """Sends requests of Millstream's own. Threads may share it."""

    def __init__(self, link: Link, find_nodes: "Callable[[], Sequence[BrokerNode]]") -> None:
        self._link = link
        self._find_nodes = find_nodes
        # Those of the cluster, the one that answered the last request first; none: not known.
        self._nodes: list[BrokerNode] = []

    def to(self, node: "BrokerNode") -> "BrokerRequests":
        """The same, sent to this node only."""
        return BrokerRequests(self._link, lambda: [node])

    def call(
        self, request: "Message", answer: "type[_Response]", *, feature: str, doing: str
    ) -> "_Response":
        """Return the answer; raise if it has an error.

        `feature` names in the plural what a broker that is not Millstream does not have.
        """
        deadline = monotonic() + self._link.timeout_s
        while True:
            response = self.ask(request, answer, feature=feature, doing=doing)
            code = response.error_code
            if not code:
                return response
            if code not in PASSING or monotonic() > deadline:
                raise refusal(code, response.error_message or "", doing)
            sleep(RETRY_S)

    def ask(
        self, request: "Message", answer: "type[_Answer]", *, feature: str, doing: str
    ) -> "_Answer":
        """Return the answer; its errors are the caller's to read."""
        try:
            with self._connect(doing) as connection:
                return exchange(connection, request, answer, doing)
        except _Unserved:
            raise NotSupported(
                f"{feature} are not supported by the broker at {self._link.address}; "
                "Millstream does it.",
                code="UNSUPPORTED_VERSION",
            ) from None
        except Unreachable:
            self._nodes = []
            raise

    def _connect(self, doing: str) -> "Connection":
        """Connect to a node of the cluster. A request is sent to one node only: the next one is
        tried while nothing was sent."""
        nodes = self._nodes or list(self._find_nodes())
        problems: list[ClientError] = []
        for node in nodes:
            try:
                connection = open_connection(node, self._link.config(), doing, self._link.timeout_s)
            except (Unreachable, TimedOut) as problem:
                problems.append(problem)
                continue
            self._nodes = [node, *(other for other in nodes if other != node)]
            return connection
        self._nodes = []
        raise problems[0]


def list_transactions(
    nodes: "Iterable[BrokerNode]", config: Config, *, timeout_s: float
) -> "tuple[Transaction, ...]":
    """The transactions of all coordinators: ListTransactions (KIP-664), which librdkafka lacks."""
    from millstream.client.models import Transaction
    from millstream.kafka_wire.apis.transactions import (
        ListTransactionsRequest,
        ListTransactionsResponse,
    )

    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    doing = "list transactions"
    transactions = [
        Transaction(
            transactional_id=state.transactional_id,
            producer_id=state.producer_id,
            state=state.transaction_state,
            coordinator_id=node.node_id,
        )
        for node, answer in call_all(
            nodes, config, request, ListTransactionsResponse, doing, timeout_s
        )
        for state in answer.transaction_states
    ]
    return tuple(sorted(transactions, key=lambda transaction: transaction.transactional_id))


def topic_sizes(
    nodes: "Iterable[BrokerNode]", config: Config, *, timeout_s: float
) -> dict[str, int]:
    """Bytes of each topic on all nodes: DescribeLogDirs, which librdkafka lacks."""
    from millstream.kafka_wire.apis.admin import DescribeLogDirsRequest, DescribeLogDirsResponse

    request = DescribeLogDirsRequest(topics=None)
    sizes: Counter[str] = Counter()
    for _, answer in call_all(
        nodes, config, request, DescribeLogDirsResponse, "ask for sizes", timeout_s
    ):
        for directory in answer.results:
            for topic in directory.topics:
                sizes[topic.name] += sum(part.partition_size for part in topic.partitions)
    return dict(sizes)


def call_all(
    nodes: "Iterable[BrokerNode]",
    config: Config,
    request: "Message",
    answer: "type[_Checked]",
    doing: str,
    timeout_s: float,
) -> "Iterator[tuple[BrokerNode, _Checked]]":
    """The answers of all nodes to one request; a node's error is raised."""
    from millstream.kafka_wire.error_codes import name_of

    for node in nodes:
        try:
            answered = call(node, config, request, answer, doing, timeout_s)
        except _Unserved:
            raise NotSupported(
                f"cannot {doing}: the broker at {node.host}:{node.port} does not serve it.",
                code="UNSUPPORTED_VERSION",
            ) from None
        if answered.error_code:
            name = name_of(answered.error_code)
            raise KIND_OF.get(name, ClientError)(f"cannot {doing}: {name.lower()}.", code=name)
        yield node, answered


class _Unserved(MillstreamError):
    """The broker does not serve this request."""


def call(
    node: "BrokerNode",
    config: Config,
    request: "Message",
    answer: "type[_Answer]",
    doing: str,
    timeout_s: float,
) -> "_Answer":
    """One request over a connection of its own."""
    with open_connection(node, config, doing, timeout_s) as connection:
        return exchange(connection, request, answer, doing)


def open_connection(
    node: "BrokerNode", config: Config, doing: str, timeout_s: float
) -> "Connection":
    """Connect and log in; nothing of a request is sent."""
    from millstream.kafka_client.connection import Connection

    place = (node.host, node.port)
    settings = connection_settings(place, config, doing=doing, timeout_s=timeout_s)
    with _explained(place, doing):
        return Connection(place, settings)


def exchange(
    connection: "Connection", request: "Message", answer: "type[_Answer]", doing: str
) -> "_Answer":
    with _explained(connection.address, doing):
        return connection.call(request, answer)


@contextmanager
def _explained(place: tuple[str, int], doing: str) -> Iterator[None]:
    """Raise problems of a connection as errors of the client."""
    from millstream.errors import ProtocolError
    from millstream.kafka_client import errors

    address = "{}:{}".format(*place)
    try:
        yield
    except errors.UnsupportedApi:
        raise _Unserved from None
    except errors.AuthenticationFailed as problem:
        raise Denied(f"cannot {doing}: {problem}.", code="SASL_AUTHENTICATION_FAILED") from None
    except errors.TlsFailed as problem:
        raise Denied(f"cannot {doing}: {problem}.") from None
    except UnicodeEncodeError as problem:
        raise Refused(f"{problem.object!r} is not a text that UTF-8 can encode") from None
    except ProtocolError as problem:
        raise Refused(
            f"cannot {doing}: the answer of {address} is not Kafka's ({problem})"
        ) from None
    except TimeoutError:
        raise TimedOut(f"cannot {doing}: no answer from {address}.") from None
    except OSError as problem:
        raise unreachable(address, doing, str(problem)) from problem


def connection_settings(
    address: tuple[str, int], config: Config, *, doing: str, timeout_s: float
) -> "ClientSettings":
    """The settings of a connection, read from librdkafka's; nothing is sent before they are."""
    from millstream.kafka_client.settings import ClientSettings

    protocol = str(config.get("security.protocol", "plaintext")).lower()
    if protocol not in PROTOCOLS:
        raise NotSupported(
            f"cannot {doing} over security.protocol {protocol!r}; "
            f"supported are {', '.join(PROTOCOLS)}."
        )
    has_tls, has_login = PROTOCOLS[protocol]
    return ClientSettings(
        bootstrap=(address,),
        client_id=str(config.get("client.id", "millstream")),
        tls=_tls(config, doing) if has_tls else None,
        credentials=_credentials(config, doing) if has_login else None,
        answer_bytes_max=ANSWER_BYTES_MAX,
        request_ms_max=max(1, round(timeout_s * 1000)),
    )


def _tls(config: Config, doing: str) -> "Tls":
    from millstream.kafka_client.errors import TlsFailed
    from millstream.kafka_client.settings import Tls
    from millstream.kafka_client.tls import tls_context

    for name in _UNSUPPORTED_TLS:
        if config.get(name):
            raise NotSupported(f"cannot {doing} with {name}: it is not supported here.")
    location = config.get("ssl.ca.location")
    is_named = str(config.get("ssl.endpoint.identification.algorithm", "https")).lower() != "none"
    is_checked = str(config.get("enable.ssl.certificate.verification", True)).lower() != "false"
    tls = Tls(
        # "probe" is librdkafka's word for the authorities that the system trusts.
        ca_file=None if location in (None, "", "probe") else str(location),
        ca_pem=config.get("ssl.ca.pem"),
        certificate_file=config.get("ssl.certificate.location") or None,
        key_file=config.get("ssl.key.location") or None,
        key_password=config.get("ssl.key.password"),
        checks_certificate=is_checked,
        checks_hostname=is_named,
    )
    try:
        tls_context(tls)
    except TlsFailed as problem:
        raise Refused(f"cannot {doing}: {problem}") from None
    return tls


def _credentials(config: Config, doing: str) -> "Credentials":
    from millstream.kafka_client.sasl import MECHANISMS
    from millstream.kafka_client.settings import Credentials

    mechanism = str(config.get("sasl.mechanism", config.get("sasl.mechanisms", "GSSAPI")))
    if mechanism not in MECHANISMS:
        raise NotSupported(
            f"cannot {doing} with SASL {mechanism}; supported are {', '.join(MECHANISMS)}."
        )
    if mechanism == "OAUTHBEARER":
        return Credentials(username="", password=_token(config, doing), mechanism=mechanism)
    return Credentials(
        username=str(config.get("sasl.username", "")),
        password=str(config.get("sasl.password", "")),
        mechanism=mechanism,
    )


def _token(config: Config, doing: str) -> str:
    """A token from the callback that confluent-kafka calls as well."""
    callback = config.get("oauth_cb")
    if callback is None:
        raise NotSupported(
            f"cannot {doing} with SASL OAUTHBEARER without oauth_cb, which returns a token."
        )
    token, *_ = callback(str(config.get("sasl.oauthbearer.config", "")))
    return str(token)


def refusal(code: int, message: str, doing: str) -> ClientError:
    from confluent_kafka import KafkaError

    error = KafkaError(code)
    name = error.name()
    # A broker that has enough to do answers so, for example while it carries out the same request.
    kind = Busy if code == TIMED_OUT else KIND_OF.get(name, Refused)
    reason = message or error.str()
    return kind(
        f"cannot {doing}: {reason}.", code=name, retriable=kind is Busy or error.retriable()
    )
