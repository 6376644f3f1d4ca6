"""The phases of a Kafka connection on a listener with SASL (KIP-43, KIP-152, KIP-368).

Owns which request is allowed in which phase; `engine.access.login` checks what clients send. What
is not in the table closes the connection.
"""

import asyncio
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any

from millstream.engine.access.login import Exchange, Login
from millstream.errors import ProtocolError
from millstream.errors.access import LoginFailed
from millstream.kafka_wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.kafka_wire.apis.table import API_VERSIONS
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.kafka_wire.frames import LENGTH
from millstream.kafka_wire.headers import RequestHeader, decode_request, encode_response
from millstream.kafka_wire.schema import Chunk
from millstream.model import NEVER_EXPIRES, Buffer

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
REAUTHENTICATION_S_MIN = 1.0

Reply = list[Chunk]
Begun = Coroutine[Any, Any, Reply | None] | Reply | None


class Phase(Enum):
    """The state of authentication. Without SASL every connection is open at once."""

    START = "start"
    WRAPPED = "wrapped"  # SaslAuthenticate carries the tokens.
    RAW = "raw"  # Tokens come as they are, after SaslHandshake v0.
    OPEN = "open"


class KafkaLogin:
    """Stands before the handlers: `begin` answers a request, or returns None to let it pass."""

    def __init__(self, login: Login, opened: Callable[[], None]) -> None:
        """`opened` is called after each login."""
        self.phase = Phase.START
        self._login = login
        self._opened = opened
        self._exchange: Exchange | None = None
        self._is_busy = False  # A message of the client is being checked.
        self._loop = asyncio.get_running_loop()
        self._logged_in_at = 0.0

    def begin(self, frame: Buffer) -> Begun:
        """Answer what belongs to a login; `ProtocolError` closes the connection."""
        key = int.from_bytes(frame[:2], signed=True)
        if self.phase is Phase.OPEN:
            return self._begin_open(key, frame)
        self._login.count_request()
        if self._is_busy:
            raise ProtocolError("a request came before the answer to the login")
        match self.phase, key:
            case Phase.RAW, _:
                return self._raw(bytes(frame))
            case Phase.START, 18:
                return None
            case Phase.START, 17:
                return self._handshake(frame)
            case Phase.START, 36:
                return self._out_of_order(frame)
            case Phase.WRAPPED, 36:
                return self._authenticate(bytes(frame))
            case _:
                raise ProtocolError(f"API {key} before a login, in phase {self.phase.value}")

    def _begin_open(self, key: int, frame: Buffer) -> Begun:
        now, expires_at = self._loop.time(), self._login.session.expires_at
        if key == SASL_HANDSHAKE and expires_at != NEVER_EXPIRES:
            if now - self._logged_in_at >= REAUTHENTICATION_S_MIN:
                return self._handshake(frame)
        elif now >= expires_at:
            raise ProtocolError("the session has ended")
        return None

    def _handshake(self, frame: Buffer) -> Reply:
        header, request = decode_request(frame, (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE))
        assert isinstance(request, SaslHandshakeRequest)
        names = list(self._login.mechanisms)
        if request.mechanism not in names:
            self._login.hang_up()
            response = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names
            )
            return encode_response(header, response)
        self._exchange = self._login.exchange(request.mechanism)
        self.phase = Phase.RAW if header.api_version == 0 else Phase.WRAPPED
        return encode_response(header, SaslHandshakeResponse(mechanisms=names))

    def _out_of_order(self, frame: Buffer) -> Reply:
        header, _ = decode_request(frame)
        self._login.hang_up()
        return _refused(
            header, ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate without SaslHandshake"
        )

    async def _authenticate(self, frame: bytes) -> Reply:
        header, request = decode_request(frame)
        assert isinstance(request, SaslAuthenticateRequest)
        try:
            token = await self._step(bytes(request.auth_bytes))
        except LoginFailed as problem:
            self._login.hang_up()
            return _refused(header, ErrorCode.SASL_AUTHENTICATION_FAILED, str(problem))
        response = SaslAuthenticateResponse(
            auth_bytes=token, session_lifetime_ms=self._lifetime_ms()
        )
        return encode_response(header, response)

    async def _raw(self, message: bytes) -> Reply | None:
        try:
            token = await self._step(message)
        except LoginFailed:
            self._login.hang_up()
            return None
        return [LENGTH.pack(len(token)) + token]

    async def _step(self, message: bytes) -> bytes:
        assert self._exchange is not None
        self._is_busy = True
        try:
            self._check_mechanism(self._exchange.mechanism)
            token = await self._login.step(self._exchange, message)
        finally:
            self._is_busy = False
        if self._exchange.identity is not None:
            self._exchange = None
            self.phase = Phase.OPEN
            self._logged_in_at = self._loop.time()
            self._opened()
        return token

    def _check_mechanism(self, mechanism: str) -> None:
        before = self._login.session.mechanism
        if self._login.is_done and mechanism != before:
            raise LoginFailed(
                f"SASL mechanism '{mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{before}'",
                "another mechanism",
                self._login.session.principal.name,
            )

    def _lifetime_ms(self) -> int:
        expires_at = self._login.session.expires_at
        if self.phase is not Phase.OPEN or expires_at == NEVER_EXPIRES:
            return 0
        return max(1, int((expires_at - self._loop.time()) * 1000))


def _refused(header: RequestHeader, code: ErrorCode, text: str) -> Reply:
    return encode_response(header, SaslAuthenticateResponse(error_code=code, error_message=text))
