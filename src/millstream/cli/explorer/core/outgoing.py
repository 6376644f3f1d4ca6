"""A record to send, as the fields of a form say it. Pure."""

from dataclasses import dataclass

from millstream.cli.options import ordered_pairs
from millstream.cli.records import encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The typed record. An empty key is no key; an empty partition is chosen by the key."""

    key: str = ""
    value: str = ""
    headers: str = ""
    partition: str = ""
    coding: str = "string"
    is_tombstone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | str | None]]
    partition: int | None


def read_fields(fields: Fields) -> Outgoing:
    """The record; `ValueError` or a refusal says which field is not right."""
    partition = fields.partition.strip()
    if partition and not partition.isdecimal():
        raise ValueError(f"Partition {partition!r} is not a number; leave it empty to go by key.")
    if fields.is_tombstone and not fields.key:
        raise ValueError("A tombstone deletes a key: type the key.")
    lines = [line.strip() for line in fields.headers.splitlines() if line.strip()]
    return Outgoing(
        key=fields.key.encode() or None,
        value=None if fields.is_tombstone else encode(fields.value, fields.coding),
        headers=[(name, value) for name, value in ordered_pairs(lines, "A header")],
        partition=int(partition) if partition else None,
    )
