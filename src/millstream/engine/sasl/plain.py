"""PLAIN (RFC 4616): authorization id, user and password in one message.

The texts of refusals are Kafka's, which clients and their users know.
"""

from typing import NamedTuple

from millstream.errors.access import LoginFailed

PART_BYTES_MAX = 255
INVALID_CREDENTIALS = "Authentication failed: Invalid username or password"


class PlainLogin(NamedTuple):
    user: str
    password: str

    def __repr__(self) -> str:
        return "PlainLogin([hidden])"


def parse(message: bytes) -> PlainLogin:
    """Read `[authzid] NUL user NUL password`; raise `LoginFailed`."""
    try:
        parts = message.decode("utf-8").split("\0")
    except UnicodeDecodeError:
        raise LoginFailed("Invalid SASL/PLAIN response: not UTF-8", "malformed") from None
    if len(parts) != 3:
        raise LoginFailed(
            f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}", "malformed"
        )
    authorization_id, user, password = parts
    if not user:
        raise LoginFailed("Authentication failed: username not specified", "malformed")
    if not password:
        raise LoginFailed("Authentication failed: password not specified", "malformed", user)
    if max(len(part.encode()) for part in parts) > PART_BYTES_MAX:
        raise LoginFailed(INVALID_CREDENTIALS, "malformed", user[:PART_BYTES_MAX])
    if authorization_id and authorization_id != user:
        raise LoginFailed(
            "Authentication failed: Client requested an authorization id that is different from "
            "username",
            "authorization id",
            user,
        )
    return PlainLogin(user, password)
