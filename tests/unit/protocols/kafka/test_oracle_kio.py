"""Kio, another codec of the same protocol, reads what we write and writes what we read."""

import io
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

import pytest
from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from millstream.kafka_wire.apis.table import APIS, OWN_KEYS_FIRST
from millstream.kafka_wire.readers import decode, reader_of
from millstream.kafka_wire.schema import NO_ID, Message, plain_fields, tagged_fields
from millstream.kafka_wire.writers import splice, writer_of
from tests.support.each import check_each
from tests.unit.protocols.kafka.arbitrary import (
    CASES_BY_API,
    Case,
    arbitrary,
    case_id,
    message_type,
)

VALUES_PER_CASE = 12


def kio_type(case: Case) -> type:
    api, direction, version = case
    module = load_payload_module(api.key, version, EntityType[direction])  # type: ignore[arg-type]
    return getattr(module, f"{api.name}{direction.capitalize()}")


def plain(value: object) -> object:
    """Undo what kio makes of numbers: durations, dates, error codes, null ids."""
    match value:
        case timedelta():
            return round(value / timedelta(milliseconds=1))
        case datetime():
            return round(value.timestamp() * 1000)
        case tuple():
            return [plain(element) for element in value]
        case _ if is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value


def agree(ours: object, theirs: object, version: int) -> bool:
    match ours:
        case Message():
            assert isinstance(theirs, dict)
            table = plain_fields(type(ours), version) + tagged_fields(type(ours), version)
            assert {field.name.removesuffix("_ms") for field in table} == {
                name.removesuffix("_ms") for name in theirs
            }
            return all(
                agree(
                    getattr(ours, field.name),
                    theirs.get(field.name, theirs.get(field.name.removesuffix("_ms"))),
                    version,
                )
                for field in table
            )
        case [bytes(one)] if isinstance(theirs, bytes):
            return one == theirs
        case list() if theirs is not None:
            assert isinstance(theirs, list)
            assert len(ours) == len(theirs)
            return all(agree(a, b, version) for a, b in zip(ours, theirs, strict=True))
        case None if isinstance(theirs, dict):
            return set(theirs.values()) == {-1}  # An absent tagged part, with its defaults.
        case UUID():
            return ours == (theirs or NO_ID)
        case -1:
            return theirs in (-1, None)
        case _:
            return ours == theirs


def check_spelling(case: Case) -> None:
    api, _, version = case
    ours, theirs = message_type(case), kio_type(case)
    is_flexible = api.is_flexible(version)
    random = Random(case_id(case))
    assert theirs.__flexible__ == is_flexible  # type: ignore[attr-defined]

    for _ in range(VALUES_PER_CASE):
        message = arbitrary(ours, version, random)

        out, splices = bytearray(), []  # type: ignore[var-annotated]
        writer_of(ours, version, is_flexible=is_flexible)(message, out, splices)
        written = b"".join(splice(out, splices))  # type: ignore[arg-type]
        read_by_kio, size = entity_reader(theirs)(written, 0)  # type: ignore[var-annotated]
        written_by_kio = io.BytesIO()
        entity_writer(theirs)(written_by_kio, read_by_kio)
        reader = reader_of(ours, version, is_flexible=is_flexible)

        assert size == len(written)
        assert agree(message, plain(read_by_kio), version)
        assert written_by_kio.getvalue() == written
        assert decode(reader, written_by_kio.getvalue(), 0, "message") == message


# Kio has no schema for Millstream's own APIs.
@pytest.mark.parametrize("api", [api.name for api in APIS.values() if api.key < OWN_KEYS_FIRST])
def test_kio_and_we_spell_every_message_alike(api: str) -> None:
    check_each(CASES_BY_API[api], check_spelling, name=case_id)
