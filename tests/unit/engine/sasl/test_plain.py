"""PLAIN: one message, refused in Kafka's words."""

import pytest

from millstream.engine.sasl.plain import parse
from millstream.errors.access import LoginFailed

AUTHORIZATION_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


@pytest.mark.parametrize("message", [b"\0ann\0secret", b"ann\0ann\0secret"])
def test_user_and_password_are_read(message: bytes) -> None:
    assert tuple(parse(message)) == ("ann", "secret")
    assert "secret" not in repr(parse(message))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0ann", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0ann\0a\0b", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0ann\0", "Authentication failed: password not specified"),
        (b"\0ann\0" + b"x" * 256, "Authentication failed: Invalid username or password"),
        (b"\0\xff\0x", "Invalid SASL/PLAIN response: not UTF-8"),
        (
            b"root\0ann\0secret",  # CVE-2017-12610
            AUTHORIZATION_ID,
        ),
    ],
)
def test_a_message_that_breaks_the_rules_is_refused_in_kafkas_words(
    message: bytes, text: str
) -> None:
    with pytest.raises(LoginFailed) as raised:
        parse(message)

    assert str(raised.value) == text
