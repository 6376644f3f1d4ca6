"""One connection to one broker: bytes of Kafka's protocol over a blocking socket.

Owns the socket, TLS, SASL and the versions agreed upon; the messages are the broker's own tables.
Blocking, because a Spark task has nothing else to do. The one thing to know: answers come in the
order of the requests, so a caller may send the next one before it looks at the last.
"""

import socket
import ssl
from collections import deque
from struct import Struct
from typing import TypeVar

from millstream import __version__
from millstream.errors import ProtocolError
from millstream.kafka_wire.apis.discovery import ApiVersionsRequest, ApiVersionsResponse
from millstream.kafka_wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.kafka_wire.apis.table import API_VERSIONS, APIS, Api
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.kafka_wire.headers import RequestHeader, decode_response, encode_request
from millstream.kafka_wire.schema import Message
from millstream.model import Buffer
from millstream.spark.errors import Refused
from millstream.spark.options.kafka import ClientSettings, Credentials, Tls

# An answer larger than this is a mistake: a fetch asks for a few MiB, but a batch comes whole.
FRAME_BYTES_MAX = 2**30
# How much longer than it was asked to wait a broker may take.
_GRACE_SECONDS = 5.0
_LENGTH = Struct(">i")
_M = TypeVar("_M", bound=Message)

# The highest version of a request whose fields the code here fills in, where that is not the last
# one in the tables: later ones name topics by id, or ask for many groups or transactions at once.
_VERSION_MAX = {
    "AddPartitionsToTxn": 3,
    "Fetch": 12,
    "FindCoordinator": 3,
    "OffsetCommit": 9,
    "OffsetFetch": 7,
}
# Millstream tells its own APIs only to those who go by its name.
_SOFTWARE = ApiVersionsRequest(
    client_software_name="millstream-spark", client_software_version=__version__
)
_BY_REQUEST = {api.request: api for api in APIS.values()}


class Connection:
    """Talks to the broker at `address`. After an error it is closed and of no use."""

    def __init__(self, address: tuple[str, int], settings: ClientSettings) -> None:
        self.address = address
        self._client_id = settings.client_id
        self._seconds_max = settings.request_ms_max / 1000
        self._sent: deque[tuple[Api, int, int]] = deque()  # Api, version, correlation id.
        self._next_id = 0
        self._versions: dict[int, tuple[int, int]] = {API_VERSIONS: (0, 0)}
        self._socket = _connect(address, settings.tls, self._seconds_max)
        try:
            self._agree()
            if settings.credentials is not None:
                self._authenticate(settings.credentials)
        except BaseException:
            self.close()
            raise

    def call(self, request: Message, answer: type[_M]) -> _M:
        """Send and wait for the answer."""
        assert not self._sent, "an answer is on its way that nobody took"
        self.send(request)
        return self.receive(answer)

    def send(self, request: Message) -> None:
        api = _BY_REQUEST[type(request)]
        version = self._version(api)
        self._next_id += 1
        header = RequestHeader(api.key, version, self._next_id, self._client_id)
        chunks = encode_request(header, request)
        # Only a broker's answers have ranges of files among their bytes.
        frame = [chunk for chunk in chunks if isinstance(chunk, bytes | bytearray | memoryview)]
        assert len(frame) == len(chunks)
        try:
            self._socket.sendall(b"".join(frame))
        except OSError:
            self.close()
            raise
        self._sent.append((api, version, self._next_id))

    def receive(self, answer: type[_M]) -> _M:
        """Take the answer to the oldest request that has none yet."""
        api, version, expected_id = self._sent.popleft()
        try:
            correlation_id, response = decode_response(api, version, self._frame())
            if correlation_id != expected_id:
                raise ProtocolError(f"answer to request {correlation_id}, not {expected_id}")
        except (OSError, ProtocolError):
            self.close()
            raise
        assert isinstance(response, answer)
        return response

    def speaks(self, request: type[Message]) -> bool:
        """Whether the broker takes requests of this kind."""
        return _BY_REQUEST[request].key in self._versions

    @property
    def is_idle(self) -> bool:
        """Whether it is open and every request has been answered."""
        return not self._sent and self._socket.fileno() >= 0

    def close(self) -> None:
        self._socket.close()

    def _frame(self) -> Buffer:
        (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if not 4 <= size <= FRAME_BYTES_MAX:
            raise ProtocolError(f"{self.address} answers with a frame of {size} bytes")
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        view = memoryview(bytearray(size))
        at = 0
        while at < size:
            count = self._socket.recv_into(view[at:])
            if count == 0:
                raise ConnectionResetError(f"{self.address[0]}:{self.address[1]} hung up")
            at += count
        return view

    def _version(self, api: Api) -> int:
        first, last = self._versions.get(api.key, (0, -1))
        version = min(last, api.last, _VERSION_MAX.get(api.name, api.last))
        if version < max(first, api.first):
            raise Refused(
                f"{self.address[0]}:{self.address[1]} does not speak {api.name} in a version "
                f"from {api.first} to {_VERSION_MAX.get(api.name, api.last)}"
            )
        return version

    def _agree(self) -> None:
        # First in the version that every broker answers, then in the latest, with our name in it.
        for _ in range(2):
            response = self.call(_SOFTWARE, ApiVersionsResponse)
            self._versions |= {
                found.api_key: (found.min_version, found.max_version) for found in response.api_keys
            }

    def _authenticate(self, credentials: Credentials) -> None:
        handshake = self.call(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
        if handshake.error_code:
            raise Refused(
                f"the broker takes SASL {', '.join(handshake.mechanisms) or 'nothing'}, not PLAIN"
            )
        words = f"\0{credentials.username}\0{credentials.password}".encode()
        answer = self.call(SaslAuthenticateRequest(auth_bytes=words), SaslAuthenticateResponse)
        if answer.error_code:
            told = answer.error_message or ErrorCode(answer.error_code).name
            raise Refused(f"the broker refuses user {credentials.username!r}: {told}")


def _connect(address: tuple[str, int], tls: Tls | None, seconds_max: float) -> socket.socket:
    plain = socket.create_connection(address, timeout=seconds_max)
    try:
        plain.settimeout(seconds_max + _GRACE_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is None:
            return plain
        return _context(tls).wrap_socket(plain, server_hostname=address[0])
    except ssl.SSLCertVerificationError as problem:
        plain.close()
        raise Refused(f"{address[0]}:{address[1]} is not who it should be: {problem}") from None
    except BaseException:
        plain.close()
        raise


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file)
    context.check_hostname = tls.checks_hostname
    if tls.certificate_file is not None:
        context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
    return context
