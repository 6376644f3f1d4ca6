"""Tokens of invitations: whole or refused; a proof and a sealed key belong to one secret."""

import pytest

from millstream.control.tokens import (
    JoinRequest,
    Token,
    decode_token,
    encode_token,
    hash_of,
    is_proved,
    proof_of,
    seal_key,
    unseal_key,
)
from millstream.errors.cluster import InvalidInvitation

TOKEN = Token(cluster_id="c", addresses=("localhost:9092",), secret=b"s" * 32)
REQUEST = JoinRequest(directory_id="d", peer="host:9093", nonce=b"n" * 32, cluster_id="c")
HASH, OTHER = hash_of(b"s" * 32), hash_of(b"o" * 32)


def test_a_token_survives_its_text_and_shows_no_secret() -> None:
    assert decode_token(f"  {encode_token(TOKEN)}\n") == TOKEN
    assert "hidden" in repr(TOKEN)
    assert "ssss" not in repr(TOKEN)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "msjoin1-",
        "msjoin1-????",
        encode_token(TOKEN)[:-9],
        encode_token(Token(cluster_id="c", addresses=(), secret=b"s" * 32)),
        encode_token(Token(cluster_id="c", addresses=("a:1",), secret=b"short")),
        "msjoin1-" + "A" * 10_000,
    ],
)
def test_any_other_text_is_refused_by_a_sentence(text: str) -> None:
    with pytest.raises(InvalidInvitation, match="copy the whole line"):
        decode_token(text)


def test_a_proof_is_of_one_secret_and_one_request() -> None:
    proof = proof_of(HASH, REQUEST)

    assert is_proved(HASH, REQUEST, proof)
    assert not is_proved(OTHER, REQUEST, proof)
    other = JoinRequest(directory_id="e", peer="host:9093", nonce=b"n" * 32, cluster_id="c")
    assert not is_proved(HASH, other, proof)


def test_a_sealed_key_is_opened_by_the_same_secret_only() -> None:
    key = bytes(range(32))
    sealed = seal_key(HASH, b"nonce", key)

    assert unseal_key(HASH, b"nonce", sealed) == key
    assert key not in sealed
    for secret_hash, nonce, data in [
        (OTHER, b"nonce", sealed),
        (HASH, b"other", sealed),
        (HASH, b"nonce", sealed[:-1]),
        (HASH, b"nonce", b""),
    ]:
        with pytest.raises(InvalidInvitation, match="no node of the cluster"):
            unseal_key(secret_hash, nonce, data)
