"""Answers to requests with an `Idempotency-Key`, kept for ten minutes.

A repetition with the same body gets the first answer, also while the first is still at work; the
same key with another body is refused. An answer that says "try again" is not kept.
"""

import asyncio
import hashlib
from collections import OrderedDict
from http import HTTPStatus
from typing import NamedTuple

from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.wire.requests import Request

KEPT_S = 600.0
KEY_LENGTH_MAX = 200
ANSWER_BYTES_MAX = 64 * 1024  # Of one answer; a larger one is not kept, its key is.

Place = tuple[str, str, str, str]  # Principal, method, path, key.


class _Answer(NamedTuple):
    print: bytes
    expires_at: float
    future: "asyncio.Future[bytes]"


class Slot:
    """The place of an answer: taken, or to be filled by the caller."""

    def __init__(self, owner: "Remembered", place: Place, answer: _Answer, is_taken: bool) -> None:
        self.is_taken = is_taken
        self._owner = owner
        self._place = place
        self._answer = answer

    async def answer(self) -> bytes:
        return await asyncio.shield(self._answer.future)

    def keep(self, whole: bytes, *, is_final: bool) -> None:
        if not self._answer.future.done():
            self._answer.future.set_result(whole)
        if not is_final or len(whole) > ANSWER_BYTES_MAX:
            self._owner.drop(self._place)

    def forget(self) -> None:
        self._answer.future.cancel()
        self._owner.drop(self._place)


class Remembered:
    def __init__(self, answers_max: int) -> None:
        self._answers_max = answers_max
        self._answers: OrderedDict[Place, _Answer] = OrderedDict()

    def open(self, place: Place, body_print: bytes, now: float) -> Slot:
        """The slot of a request; raise 422 if its key was used with another body."""
        answer = self._answers.get(place)
        if answer is not None and answer.expires_at > now and not answer.future.cancelled():
            if answer.print != body_print:
                raise HttpProblem(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    "idempotency_key_reused",
                    f"Idempotency-Key {place[3][:100]!r} came with another request before",
                )
            return Slot(self, place, answer, is_taken=True)
        self._make_room(now)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        answer = self._answers[place] = _Answer(body_print, now + KEPT_S, future)
        return Slot(self, place, answer, is_taken=False)

    def drop(self, place: Place) -> None:
        self._answers.pop(place, None)

    def _make_room(self, now: float) -> None:
        while self._answers:
            place, oldest = next(iter(self._answers.items()))
            if oldest.expires_at > now and len(self._answers) < self._answers_max:
                return
            del self._answers[place]


def key_of(request: Request) -> str:
    """The `Idempotency-Key` of a request; empty if it has none."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > KEY_LENGTH_MAX:
        raise HttpProblem(
            HTTPStatus.BAD_REQUEST,
            "invalid_request",
            f"Idempotency-Key of {len(key)} characters, at most {KEY_LENGTH_MAX}",
        )
    return key


def fingerprint(request: Request) -> bytes:
    """Tells requests with the same key apart: body, query and type."""
    digest = hashlib.blake2b(request.body, digest_size=16)
    digest.update(repr(request.query).encode())
    digest.update(request.headers.get("content-type", "").encode())
    return digest.digest()
