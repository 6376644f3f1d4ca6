"""The chain of the audit trail: every edit of it is found, and named."""

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.security.audit import Audit, expand_events
from millstream.security.audit_events import Facts, Head, StoredEvent, decode, encode, verify

KEY = b"a key of the operator"


def chain(count: int = 5, *, key: bytes = b"", node: int = 1) -> list[StoredEvent]:
    head, stored = Head(), []
    for at in range(count):
        facts = Facts(event="access.denied", principal=f"User:u{at}", resource="topic:a", node=node)
        value, head = encode(facts, 1_700_000_000_123 + at, head, cluster_id="C", key=key)
        stored.append(StoredEvent(0, at, value))
    return stored


def changed(event: StoredEvent) -> StoredEvent:
    return event._replace(value=event.value.replace(b"topic:a", b"topic:b"))


def rehashed(event: StoredEvent) -> StoredEvent:
    """What a forger without the key can do: another event with a hash that fits."""
    known = decode(event.value)
    facts = msgspec.structs.replace(known.data, principal="User:nobody")
    before = Head(known.seq - 1, known.prev)
    return event._replace(value=encode(facts, known.at_ms, before, cluster_id="C", key=b"")[0])


EDITS: dict[str, tuple[Callable[[list[StoredEvent]], list[StoredEvent]], str]] = {
    "flipped": (lambda e: [*e[:2], changed(e[2]), *e[3:]], "1-3 is not what its hash says"),
    "removed": (lambda e: [*e[:2], *e[3:]], "1-4 follows 1-2"),
    "added": (lambda e: [*e[:3], rehashed(e[2]), *e[3:]], "1-3 follows 1-3"),
    "exchanged": (lambda e: [e[0], e[2], e[1], *e[3:]], "1-3 follows 1-1"),
    "first removed": (lambda e: e[1:], "the events of node 1 before 1-2 are missing"),
    "rewritten": (lambda e: [*e[:2], rehashed(e[2]), *e[3:]], "1-4 does not continue"),
    "no event": (lambda e: [*e, StoredEvent(0, 9, b"{}")], "the record is no event"),
}


@pytest.mark.parametrize("key", [b"", KEY])
def test_a_chain_that_was_not_touched_is_whole(key: bytes) -> None:
    verdict = verify(chain(key=key), key=key)

    assert verdict.breaks == []
    assert verdict.event_count == 5
    assert verdict.heads[1].seq == 5


@pytest.mark.parametrize("edit", EDITS)
def test_every_edit_is_found_at_its_event(edit: str) -> None:
    change, problem = EDITS[edit]

    verdict = verify(change(chain()))

    assert len(verdict.breaks) == 1
    assert problem in verdict.breaks[0].problem


def test_with_a_key_a_rewritten_chain_is_found() -> None:
    events = chain(key=KEY)
    forged = [*events[:2], rehashed(events[2]), *events[3:]]

    assert "1-3 is not what its hash says" in verify(forged, key=KEY).breaks[0].problem
    assert verify(chain(), key=KEY).breaks  # Hashes without a key do not pass for signed ones.


def test_a_start_that_retention_has_cut_is_no_break() -> None:
    assert verify(chain()[2:], starts={0: 2}).breaks == []


def test_chains_of_several_nodes_share_a_partition() -> None:
    mixed = [event for pair in zip(chain(), chain(node=5), strict=True) for event in pair]

    assert verify(mixed).breaks == []
    assert set(verify(mixed).heads) == {1, 5}


def test_the_json_has_the_fields_of_cloudevents_in_their_order() -> None:
    event = msgspec.json.decode(chain(1)[0].value)

    assert list(event) == [
        *("specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data"),
        *("seq", "prev", "hash"),
    ]
    assert event["source"] == "millstream://C/nodes/1"
    assert event["type"] == "millstream.access.denied"
    assert event["time"] == "2023-11-14T22:13:20.123Z"
    assert list(event["data"]) == [
        *("event", "result", "principal", "roles", "mechanism", "listener", "protocol"),
        *("address", "client_id", "action", "operation", "resource", "rule", "count", "node"),
        "details",
    ]


@given(st.integers(0, 4_000_000_000_000))
def test_times_are_those_of_the_calendar(at_ms: int) -> None:
    value, _ = encode(Facts(event="system.start"), at_ms, Head(), cluster_id="C", key=b"")
    event = decode(value)

    expected = datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    assert event.time == f"{expected}.{at_ms % 1000:03d}Z"
    assert event.at_ms == at_ms


def test_unknown_events_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"audit\.events: there is no event 'topic\.created'"):
        Audit(events=("topic.created",))
    assert expand_events(("data.*",)) == {"data.produce", "data.consume"}
