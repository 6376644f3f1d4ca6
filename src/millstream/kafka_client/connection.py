"""One connection to one broker: Kafka's protocol over a blocking socket.

Owns the socket, TLS, SASL and the agreed versions; `kafka_wire` has the messages. Answers come in
the order of the requests, so a caller may send the next request before it takes the last answer.
"""

import socket
from collections import deque
from struct import Struct
from time import monotonic
from typing import Self, TypeVar

from millstream import __version__
from millstream.errors import ProtocolError
from millstream.kafka_client.errors import AuthenticationFailed, UnsupportedApi
from millstream.kafka_client.settings import ClientSettings, Credentials, Tls
from millstream.kafka_wire.apis.discovery import ApiVersionsRequest, ApiVersionsResponse
from millstream.kafka_wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.kafka_wire.apis.table import API_VERSIONS, APIS, Api
from millstream.kafka_wire.error_codes import ErrorCode, name_of
from millstream.kafka_wire.frames import FRAME_BYTES_MIN, LENGTH
from millstream.kafka_wire.headers import RequestHeader, decode_response, encode_request
from millstream.kafka_wire.schema import Message

# Answers before a login are small; a stranger must not make us reserve more.
HANDSHAKE_BYTES_MAX = 2**20
# How much longer than it was asked to wait a broker may take.
GRACE_S = 5.0
# An answer may take longer than the time limit if it keeps coming at this rate.
BYTES_PER_S_MIN = 64 * 2**10
SHORTEST_WAIT_S = 0.001  # Zero would make the socket non-blocking.
# The broker closes a session at the end of its lifetime (KIP-368); no request starts that late.
SESSION_USED_MAX = 0.85

_M = TypeVar("_M", bound=Message)
_ERROR_CODE = Struct(">h")

# The highest version of a request whose fields the callers fill in, where that is not the last in
# the tables: later ones name topics by id, or ask for many groups or transactions at once.
_VERSION_MAX = {
    "AddPartitionsToTxn": 3,
    "Fetch": 12,
    "FindCoordinator": 3,
    "OffsetCommit": 9,
    "OffsetFetch": 7,
}
_BY_REQUEST = {api.request: api for api in APIS.values()}


class Connection:
    """Talks to the broker at `address`. Closed after an error; not for several threads at once."""

    def __init__(self, address: tuple[str, int], settings: ClientSettings) -> None:
        self.address = address
        self._client_id = settings.client_id
        self._timeout_s = settings.request_ms_max / 1000
        self._answer_bytes_max = HANDSHAKE_BYTES_MAX
        self._sent: deque[tuple[Api, int, int]] = deque()  # Api, version, correlation id.
        self._last_id = 0
        self._session_ends = float("inf")
        latest = APIS[API_VERSIONS].last
        self._versions: dict[int, tuple[int, int]] = {API_VERSIONS: (latest, latest)}
        self._is_tls = settings.tls is not None
        self._socket = _connect(address, settings.tls, self._timeout_s)
        try:
            self._agree_on_versions(settings.software_name)
            if settings.credentials is not None:
                self._authenticate(settings.credentials)
        except BaseException:
            self.close()
            raise
        self._answer_bytes_max = settings.answer_bytes_max

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, request: Message, answer: type[_M]) -> _M:
        """Send a request and wait for its answer."""
        assert not self._sent, "an earlier answer was not received yet"
        self.send(request)
        return self.receive(answer)

    def send(self, request: Message) -> None:
        api = _BY_REQUEST[type(request)]
        version = self._version(api)
        self._last_id += 1
        header = RequestHeader(api.key, version, self._last_id, self._client_id)
        chunks = encode_request(header, request)
        # Only a broker's answers have ranges of files among their bytes.
        frame = [chunk for chunk in chunks if isinstance(chunk, bytes | bytearray | memoryview)]
        assert len(frame) == len(chunks)
        try:
            self._socket.settimeout(self._timeout_s + GRACE_S)
            self._socket.sendall(b"".join(frame))
        except OSError:
            self.close()
            raise
        self._sent.append((api, version, self._last_id))

    def receive(self, answer: type[_M]) -> _M:
        """Take the answer to the oldest request that has none yet."""
        api, version, expected_id = self._sent.popleft()
        try:
            frame = self._frame()
            if api.key == API_VERSIONS and _error_code(frame) == ErrorCode.UNSUPPORTED_VERSION:
                version = 0  # A broker that does not know the version answers in the first one.
            correlation_id, response = decode_response(api, version, frame)
            if correlation_id != expected_id:
                raise ProtocolError(f"answer to request {correlation_id}, not {expected_id}")
        except (OSError, ProtocolError) as problem:
            self.close()
            if not self._is_tls:
                raise
            # With TLS 1.3 a broker refuses a client's certificate by its first answer.
            from millstream.kafka_client.tls import tls_failure

            raise tls_failure(self.address, problem) from None
        assert isinstance(response, answer)
        return response

    def serves(self, request: type[Message]) -> bool:
        """Whether the broker takes requests of this kind."""
        return _BY_REQUEST[request].key in self._versions

    @property
    def is_idle(self) -> bool:
        """Whether it is open, its session lasts, and every request has been answered."""
        is_open = self._socket.fileno() >= 0 and monotonic() < self._session_ends
        return is_open and not self._sent

    def close(self) -> None:
        self._socket.close()

    # -- frames --------------------------------------------------------------------------------

    def _frame(self) -> memoryview:
        deadline = monotonic() + self._timeout_s + GRACE_S
        (size,) = LENGTH.unpack(self._exactly(LENGTH.size, deadline))
        if not FRAME_BYTES_MIN <= size <= self._answer_bytes_max:
            raise ProtocolError(
                f"{_name(self.address)} answers with a frame of {size} bytes, at most "
                f"{self._answer_bytes_max} are taken"
            )
        return self._exactly(size, deadline + size / BYTES_PER_S_MIN)

    def _exactly(self, size: int, deadline: float) -> memoryview:
        view = memoryview(bytearray(size))
        at = 0
        while at < size:
            try:
                # A deadline of its own: a peer that sends a byte now and then is late as well.
                self._socket.settimeout(max(SHORTEST_WAIT_S, deadline - monotonic()))
                count = self._socket.recv_into(view[at:])
            except TimeoutError:
                raise TimeoutError(
                    f"{_name(self.address)} sent {at} of {size} bytes in time"
                ) from None
            if count == 0:
                raise ConnectionResetError(f"{_name(self.address)} closed the connection")
            at += count
        return view

    # -- versions and logins -------------------------------------------------------------------

    def _version(self, api: Api) -> int:
        first, last = self._versions.get(api.key, (0, -1))
        known_last = min(api.last, _VERSION_MAX.get(api.name, api.last))
        version = min(last, known_last)
        if version < max(first, api.first):
            raise UnsupportedApi(
                f"{_name(self.address)} does not speak {api.name} in a version "
                f"from {api.first} to {known_last}"
            )
        return version

    def _agree_on_versions(self, software_name: str) -> None:
        request = ApiVersionsRequest(
            client_software_name=software_name, client_software_version=__version__
        )
        # Once where the latest version is known: before a login, Kafka takes no second one.
        response = self.call(request, ApiVersionsResponse)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            ranges = {served.api_key: served.max_version for served in response.api_keys}
            last = max(0, min(ranges.get(API_VERSIONS, 0), APIS[API_VERSIONS].last))
            self._versions = {API_VERSIONS: (0, last)}
            response = self.call(request, ApiVersionsResponse)
        if response.error_code:
            raise UnsupportedApi(
                f"{_name(self.address)} refuses ApiVersions: {name_of(response.error_code)}"
            )
        self._versions = {
            served.api_key: (served.min_version, served.max_version) for served in response.api_keys
        }

    def _authenticate(self, credentials: Credentials) -> None:
        from millstream.kafka_client.sasl import conversation

        tokens = conversation(credentials)
        mechanism = credentials.mechanism
        handshake = self.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
        if handshake.error_code:
            raise AuthenticationFailed(
                f"{_name(self.address)} takes SASL {', '.join(handshake.mechanisms) or 'nothing'}, "
                f"not {mechanism}"
            )
        token = next(tokens)
        while True:
            answer = self.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
            if answer.error_code:
                reason = answer.error_message or name_of(answer.error_code)
                raise AuthenticationFailed(
                    f"{_name(self.address)} refuses user {credentials.username!r}: {reason}"
                )
            try:
                token = tokens.send(bytes(answer.auth_bytes))
            except StopIteration:
                break
        if answer.session_lifetime_ms > 0:
            lifetime_s = answer.session_lifetime_ms / 1000
            self._session_ends = monotonic() + lifetime_s * SESSION_USED_MAX


def _connect(address: tuple[str, int], tls: Tls | None, timeout_s: float) -> socket.socket:
    if tls is None:
        return _dial(address, timeout_s)
    # Loaded when it is asked for: a command that writes one record waits for all that is loaded.
    from millstream.kafka_client.tls import tls_context, wrapped

    context = tls_context(tls)  # Before anything is sent.
    return wrapped(_dial(address, timeout_s), context, address)


def _dial(address: tuple[str, int], timeout_s: float) -> socket.socket:
    host, port = address
    # Bytes are looked up as they are; the tables that encode a text take milliseconds to load.
    name = host.encode("ascii") if host.isascii() else host
    plain = socket.create_connection((name, port), timeout=timeout_s)  # type: ignore[arg-type]
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        plain.close()
        raise
    return plain


def _error_code(frame: memoryview) -> int:
    """The error of an answer to ApiVersions, which begins with it in every version."""
    code: int = _ERROR_CODE.unpack_from(frame, LENGTH.size)[0] if len(frame) >= 6 else 0
    return code


def _name(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"
