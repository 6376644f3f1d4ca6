"""Translates classic messages to records and back.

Pure. A property that the protocol itself does not use is a header of the record, and the other way
round; so the headers of any other protocol are there, as far as they can be written as text. The
record's key, which this protocol does not have, is the property `ms-key`.
"""

from millstream.engine.publish.publisher import Publication
from millstream.engine.push import Delivered
from millstream.names import KEY_HEADER
from millstream.protocols.classic.wire import Frame, Kind, encodable

# Properties of the protocol itself, in either direction, not of the publisher.
OWN_PROPERTIES = frozenset(
    {"topic", "partition", "subscription_id", "client_id", "publisher_id", "created_at", "version"}
)


def publication(frame: Frame, topic: str, partition: int | None) -> Publication:
    """The record that a PUBLISH asks for."""
    key = frame.properties.get(KEY_HEADER)
    headers = tuple(
        (name, value.encode())
        for name, value in frame.properties.items()
        if name not in OWN_PROPERTIES and name != KEY_HEADER
    )
    return Publication(
        topic=topic,
        value=frame.body,
        key=None if key is None else key.encode(),
        headers=headers,
        partition=partition,
    )


def data_frame(delivered: Delivered, subscription: str) -> Frame:
    """A record as a member of `subscription` gets it."""
    target, record = delivered.target, delivered.record
    properties: dict[str, str] = {}
    named = (
        (*record.headers, (KEY_HEADER, record.key)) if record.key is not None else record.headers
    )
    for name, content in named:
        text = None if content is None else _text(content)
        if text is not None and encodable(name, text) and name not in OWN_PROPERTIES:
            properties[name] = text
    properties["topic"] = target.topic
    properties["partition"] = str(target.partition)
    properties["subscription_id"] = subscription
    return Frame(
        Kind.DATA, record.offset, max(record.timestamp, 0), properties, record.value or b""
    )


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
