"""The rules of compaction on single batches: bytes in, bytes out."""

from collections.abc import Sequence
from typing import Any

import pytest

from millstream.codec.batch import Header, read_header, seal, verify_batch
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.lifetime import Lifetime
from millstream.codec.markers import ControlKind, decode_marker, encode_marker
from millstream.codec.records import Record, decode_all
from millstream.storage.compaction.policy import NOTHING_DUE
from millstream.storage.compaction.rules import (
    KEY_ENTRY_BYTES,
    RECLAIM_PAUSE_BYTES,
    RECLAIM_PAUSE_MS,
    AbortedTransactions,
    KeyMap,
    ProducerEnd,
    Remembered,
    RetentionRules,
    RulesContext,
)
from millstream.storage.log.aborted import Aborted

NOW_MS = 1_000_000
RETENTION_MS = 500
BYTES_MAX = 2**20
NOBODY = Remembered(frozenset(), frozenset())


def batch(*pairs: tuple[str | None, str | None], at: int = 0, **fields: Any) -> bytes:
    """Records with consecutive offsets and timestamps from `at` on."""
    kept_records = [
        Record(at + n, 1_000 + at + n, _bytes(key), _bytes(value))
        for n, (key, value) in enumerate(pairs)
    ]
    return encode_batch(kept_records, base_offset=at, epoch=3, **fields)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def marker(at: int, kind: ControlKind = ControlKind.ABORT, *, epoch: int = 0) -> bytes:
    return encode_marker(
        kind,
        producer_id=7,
        producer_epoch=epoch,
        coordinator_epoch=0,
        timestamp=1_000 + at,
        base_offset=at,
    )


def transactional(*pairs: tuple[str | None, str | None], at: int = 0) -> bytes:
    return batch(
        *pairs, at=at, producer_id=7, producer_epoch=0, base_sequence=at, is_transactional=True
    )


def make_rules(
    dirty: Sequence[bytes],
    *,
    dirty_start: int = 0,
    start_offset: int = 0,
    end_offset: int = 1_000,
    now_ms: int = NOW_MS,
    aborted: Sequence[Aborted] = (),
    producer_ends: dict[int, ProducerEnd] | None = None,
    remembered: Remembered = NOBODY,
    compacts: bool = True,
    lifetime: Lifetime | None = None,
    size_bytes: int = 0,
) -> RetentionRules:
    keys = KeyMap(bytes_max=BYTES_MAX)
    for data in dirty:
        keys.add(data, decompressed_bytes_max=BYTES_MAX)
    context = RulesContext(
        start_offset=start_offset,
        dirty_start=dirty_start,
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
        aborted=aborted,
        producer_ends=producer_ends or {},
        decompressed_bytes_max=BYTES_MAX,
        compacts=compacts,
        lifetime=lifetime,
        size_bytes=size_bytes,
    )
    return RetentionRules(
        context,
        keys,
        AbortedTransactions(aborted),
        end_offset=end_offset,
        remembered=lambda: remembered,
    )


def kept(rules: RetentionRules, data: bytes, *, must_stay: bool = False) -> bytes | None:
    result = rules.retain(verify_batch(data), memoryview(data), must_stay=must_stay)
    return None if result is None else bytes(result)


def read(data: bytes | None) -> list[Record]:
    return [] if data is None else decode_all(data, decompressed_bytes_max=BYTES_MAX)


def pairs(data: bytes | None) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read(data)]


# -- keys ------------------------------------------------------------------------------------------


def test_only_the_newest_record_of_a_key_stays() -> None:
    data = batch(("a", "1"), ("b", "2"), ("a", "3"))
    later = batch(("b", "4"), at=3)
    rules = make_rules([data, later])

    assert pairs(kept(rules, data)) == [(2, b"a", b"3")]
    assert pairs(kept(rules, later)) == [(3, b"b", b"4")]


def test_a_batch_that_loses_nothing_keeps_its_bytes() -> None:
    data = batch(("a", "1"), ("b", "2"), codec=Codec.GZIP)

    assert kept(make_rules([data]), data) == data


def test_a_batch_that_loses_records_keeps_its_place_producer_and_codec() -> None:
    fields = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 40, "codec": Codec.ZSTD}
    data = batch(("a", "1"), ("b", "2"), ("a", "3"), at=10, **fields)

    header = read_header(kept(make_rules([data]), data) or b"")

    before = read_header(data)
    assert header.count == 2
    assert header._replace(count=3, size=0, crc=0) == before._replace(size=0, crc=0)


def test_kept_records_keep_timestamps_and_headers() -> None:
    kept_records = [
        Record(0, 5, b"a", b"1"),
        Record(1, 9, b"b", b"2", (("h", b"x"), ("h", None))),
        Record(2, 3, b"a", b"3"),
    ]
    data = encode_batch(kept_records)

    assert read(kept(make_rules([data]), data)) == kept_records[1:]


def test_a_batch_with_nothing_left_goes() -> None:
    data, later = batch(("a", "1")), batch(("a", "2"), at=1)

    assert kept(make_rules([data, later]), data) is None


def test_a_batch_that_must_stay_stays_empty() -> None:
    data, later = batch(("a", "1"), ("a", "2"), at=5), batch(("a", "3"), at=7)
    result = kept(make_rules([data, later]), data, must_stay=True)

    header = verify_batch(result or b"")

    assert (header.base_offset, header.last_offset, header.epoch) == (5, 6, 3)
    assert (header.count, header.size) == (0, 61)
    assert kept(make_rules([later]), result or b"", must_stay=True) == result
    assert kept(make_rules([later]), result or b"") is None


def test_records_without_a_key_go() -> None:
    data = batch((None, "1"), ("a", "2"), ("", "3"))

    assert pairs(kept(make_rules([data]), data)) == [(1, b"a", b"2"), (2, b"", b"3")]


def test_records_below_the_log_start_go() -> None:
    data = batch(("a", "1"), ("b", "2"), ("c", "3"))

    assert pairs(kept(make_rules([data], start_offset=2), data)) == [(2, b"c", b"3")]


def test_what_lies_behind_the_end_of_the_run_is_left_alone() -> None:
    data, later = batch(("a", "1"), (None, "2"), at=10), batch(("a", "3"), at=12)

    assert kept(make_rules([data, later], end_offset=10), data) == data


def test_long_keys_are_told_apart_and_together() -> None:
    first, other = "x" * 1_000 + "1", "x" * 1_000 + "2"
    data = batch((first, "1"), (other, "2"), (first, "3"))

    assert [offset for offset, _, _ in pairs(kept(make_rules([data]), data))] == [1, 2]


def test_the_key_map_is_full_at_its_bound_and_takes_one_batch_in_any_case() -> None:
    keys = KeyMap(bytes_max=2 * KEY_ENTRY_BYTES)
    tiny = KeyMap(bytes_max=0)

    keys.add(batch(("a", "1")), decompressed_bytes_max=BYTES_MAX)
    assert not keys.is_full
    keys.add(batch(("b", "1")), decompressed_bytes_max=BYTES_MAX)

    assert keys.is_full
    assert not tiny.is_full


def test_a_batch_that_cannot_be_decoded_stays_as_it_is() -> None:
    good = batch(("a", "1"), ("b", "2"))
    header, data = seal(read_header(good)._replace(count=2), good[61:-1])
    assert header.size == len(data)
    rules = make_rules([data, batch(("a", "3"), at=2)])

    assert kept(rules, data) == data


def test_a_batch_that_cannot_be_decoded_supersedes_nothing() -> None:
    old = batch(("a", "1"))
    good = batch(("a", "2"), ("b", "2"), at=1)
    _, broken = seal(read_header(good), good[61:-1])

    assert kept(make_rules([old, broken]), old) == old


# -- tombstones ------------------------------------------------------------------------------------


def test_a_tombstone_gets_a_horizon_and_all_records_their_right_time() -> None:
    data = batch(("a", "1"), ("b", None), ("c", "3"), codec=Codec.LZ4)
    rules = make_rules([data])

    result = kept(rules, data)

    header = verify_batch(result or b"")
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert read(result) == read(data)
    assert rules.due_ms == NOW_MS + RETENTION_MS


def test_a_horizon_is_set_only_once() -> None:
    first = kept(make_rules([]), batch(("a", None))) or b""
    rules = make_rules([], now_ms=NOW_MS + 100, dirty_start=1)

    assert kept(rules, first) == first
    assert rules.due_ms == NOW_MS + RETENTION_MS


def test_a_tombstone_goes_when_its_horizon_has_passed() -> None:
    first = kept(make_rules([]), batch(("a", None), ("b", "2"))) or b""
    rules = make_rules([], now_ms=NOW_MS + RETENTION_MS, dirty_start=2)

    assert pairs(kept(rules, first)) == [(1, b"b", b"2")]
    assert rules.due_ms == NOTHING_DUE


def test_a_tombstone_stays_until_an_earlier_run_is_known_to_have_cleaned_before_it() -> None:
    first = kept(make_rules([]), batch(("a", None))) or b""
    rules = make_rules([first], now_ms=NOW_MS + 10 * RETENTION_MS, dirty_start=0)

    assert kept(rules, first) == first
    assert rules.due_ms == NOW_MS + RETENTION_MS


def test_a_tombstone_is_superseded_like_any_record() -> None:
    data, later = batch(("a", None)), batch(("a", "1"), at=1)
    rules = make_rules([data, later])

    assert kept(rules, data) is None
    assert rules.due_ms == NOTHING_DUE


def test_a_retention_without_end_does_not_overflow() -> None:
    data = batch(("a", None))
    rules = make_rules([data], now_ms=2**63 - 10)

    header = verify_batch(kept(rules, data) or b"")

    assert header.base_timestamp == 2**63 - 1


# -- transactions ----------------------------------------------------------------------------------


def test_what_an_aborted_transaction_wrote_goes() -> None:
    data, good = transactional(("a", "1")), batch(("b", "1"), at=1)
    rules = make_rules([good], aborted=[Aborted(7, 0, 2)])

    assert kept(rules, data) is None
    assert kept(rules, good) == good


def test_another_transaction_of_the_same_producer_stays() -> None:
    before, data, after = (transactional((f"k{at}", "1"), at=at) for at in (0, 2, 4))
    rules = make_rules([], aborted=[Aborted(7, 2, 3)])

    assert [kept(rules, record) for record in (before, data, after)] == [before, None, after]


def test_a_marker_stays_while_the_log_has_records_of_its_transaction() -> None:
    data, end = transactional(("a", "1")), marker(1, ControlKind.COMMIT)
    rules = make_rules([data])

    assert kept(rules, data) == data
    assert kept(rules, end) == end
    assert rules.due_ms == NOTHING_DUE


def test_a_marker_is_held_only_by_records_since_the_one_before() -> None:
    rules = make_rules([])

    kept(rules, transactional(("a", "1")))
    kept(rules, marker(1))
    second = kept(rules, marker(2)) or b""

    assert verify_batch(second).has_delete_horizon


def test_a_marker_stays_in_the_run_that_removes_the_aborted_records() -> None:
    data, end = transactional(("a", "1")), marker(1)
    rules = make_rules([], aborted=[Aborted(7, 0, 1)])

    assert kept(rules, data) is None
    assert kept(rules, end) == end
    assert rules.forgotten == []


def test_a_marker_without_records_gets_a_horizon_and_its_transaction_is_forgotten() -> None:
    end = marker(1)
    rules = make_rules([], aborted=[Aborted(7, 0, 1)])

    result = kept(rules, end) or b""

    assert verify_batch(result).base_timestamp == NOW_MS + RETENTION_MS
    assert decode_marker(result) == decode_marker(end)
    assert rules.forgotten == [Aborted(7, 0, 1)]
    assert rules.due_ms == NOW_MS + RETENTION_MS


@pytest.mark.parametrize("kind", ControlKind)
def test_a_marker_goes_when_its_horizon_has_passed(kind: ControlKind) -> None:
    end = kept(make_rules([]), marker(1, kind)) or b""

    assert kept(make_rules([], now_ms=NOW_MS + 499, dirty_start=2), end) == end
    assert kept(make_rules([], now_ms=NOW_MS + 500, dirty_start=1), end) == end
    assert kept(make_rules([], now_ms=NOW_MS + 500, dirty_start=2), end) is None


def test_a_marker_stays_while_readers_may_be_told_of_its_transaction() -> None:
    end = kept(make_rules([]), marker(1)) or b""
    later = {"now_ms": NOW_MS + 500, "dirty_start": 2}
    listed = make_rules([], aborted=[Aborted(7, 0, 1)], **later)  # type: ignore[arg-type]
    on_disk = make_rules([], remembered=Remembered(frozenset({1}), frozenset()), **later)  # type: ignore[arg-type]
    open_on_disk = make_rules([], remembered=Remembered(frozenset(), frozenset({7})), **later)  # type: ignore[arg-type]

    assert kept(listed, end) == end
    assert listed.forgotten == [Aborted(7, 0, 1)]
    assert kept(on_disk, end) == end
    assert kept(open_on_disk, end) == end
    assert on_disk.due_ms == NOTHING_DUE


def test_a_batch_emptied_earlier_does_not_hold_its_marker() -> None:
    empty = kept(make_rules([batch(("a", "2"), at=2)]), transactional(("a", "1")), must_stay=True)
    end = kept(make_rules([]), marker(1)) or b""
    rules = make_rules([], now_ms=NOW_MS + 500, dirty_start=2)

    assert kept(rules, empty or b"", must_stay=True) == empty
    assert kept(rules, end) is None


def test_a_marker_that_must_stay_stays_whole() -> None:
    end = kept(make_rules([]), marker(1)) or b""
    rules = make_rules([], now_ms=NOW_MS + 500, dirty_start=2)

    assert kept(rules, end, must_stay=True) == end
    assert kept(make_rules([]), marker(1), must_stay=True) == marker(1)


# -- producers -------------------------------------------------------------------------------------


def test_the_last_batch_of_a_known_producer_stays_if_need_be_empty() -> None:
    data = transactional(("a", "1"), ("a", "2"))
    rules = make_rules(
        [batch(("a", "3"), at=2)], producer_ends={7: ProducerEnd(last_offset=1, epoch=0)}
    )

    header = verify_batch(kept(rules, data) or b"")

    assert header.count == 0
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (7, 0, 1)


def test_an_earlier_batch_of_a_known_producer_goes() -> None:
    data = transactional(("a", "1"))
    rules = make_rules(
        [batch(("a", "3"), at=2)], producer_ends={7: ProducerEnd(last_offset=9, epoch=0)}
    )

    assert kept(rules, data) is None


def test_the_marker_that_tells_the_epoch_of_a_producer_stays() -> None:
    ends = {7: ProducerEnd(last_offset=-1, epoch=2)}
    later = {"now_ms": NOW_MS + 500, "dirty_start": 3, "producer_ends": ends}
    older = kept(make_rules([]), marker(1, epoch=1)) or b""
    newest = kept(make_rules([]), marker(2, epoch=2)) or b""

    assert kept(make_rules([], **later), older) is None  # type: ignore[arg-type]
    assert kept(make_rules([], **later), newest) == newest  # type: ignore[arg-type]


def test_an_unknown_kind_of_control_batch_stays() -> None:
    record = Record(0, 5, b"\0\0\0\2", b"whatever")
    data = encode_batch([record], is_control=True)

    assert kept(make_rules([]), data) == data
    assert isinstance(verify_batch(data), Header)


# -- time to live ----------------------------------------------------------------------------------

OWN_TIMES = Lifetime(-1, reads_headers=True)


def mortal(key: str | None, *lives_ms: int | None, at: int = 0) -> bytes:
    """Records of one key, written now, with these times to live."""
    kept_records = [
        Record(
            at + n,
            NOW_MS,
            _bytes(key),
            b"v",
            () if life_ms is None else (("ms-ttl-ms", b"%d" % life_ms),),
        )
        for n, life_ms in enumerate(lives_ms)
    ]
    return encode_batch(kept_records, base_offset=at, epoch=3)


def test_in_a_topic_that_is_not_compacted_only_what_is_past_its_time_goes() -> None:
    data = mortal(None, 100, None, 5_000, at=10)
    rules = make_rules([], now_ms=NOW_MS + 1_000, compacts=False, lifetime=OWN_TIMES)

    assert [record.offset for record in read(kept(rules, data))] == [11, 12]
    assert verify_batch(kept(rules, data) or b"").last_offset == 12


def test_a_log_is_gone_through_again_when_the_next_record_is_due_but_not_at_once() -> None:
    now_ms = NOW_MS + 1_000
    soon = make_rules([], now_ms=now_ms, compacts=False, lifetime=OWN_TIMES)
    late = make_rules([], now_ms=now_ms, compacts=False, lifetime=OWN_TIMES)
    never = make_rules([], now_ms=now_ms, compacts=False, lifetime=OWN_TIMES)
    large = make_rules(
        [], now_ms=now_ms, compacts=False, lifetime=OWN_TIMES, size_bytes=2 * RECLAIM_PAUSE_BYTES
    )

    kept(soon, mortal(None, 2_000))
    kept(large, mortal(None, 2_000))
    kept(late, mortal(None, 10 * RECLAIM_PAUSE_MS))
    kept(never, mortal(None, None))

    assert soon.due_ms == now_ms + RECLAIM_PAUSE_MS
    assert large.due_ms == now_ms + 3 * RECLAIM_PAUSE_MS
    assert late.due_ms == NOW_MS + 10 * RECLAIM_PAUSE_MS
    assert never.due_ms == NOTHING_DUE


def test_markers_and_undecodable_batches_of_a_topic_that_is_not_compacted_stay() -> None:
    rules = make_rules([], compacts=False, lifetime=OWN_TIMES)
    broken = seal(read_header(mortal(None, 1)), b"\x7f ms-ttl-ms")[1]

    assert kept(rules, marker(5)) == marker(5)
    assert kept(rules, broken) == broken


def test_a_record_past_its_time_stays_until_a_run_has_removed_the_older_ones_of_its_key() -> None:
    older, ended = mortal("k", None), mortal("k", 100, at=1)
    now_ms = NOW_MS + 1_000
    first = make_rules([older, ended], now_ms=now_ms, lifetime=OWN_TIMES)

    assert kept(first, older) is None
    assert kept(first, ended) == ended
    assert first.due_ms == now_ms

    second = make_rules([], dirty_start=2, now_ms=now_ms, lifetime=OWN_TIMES)
    assert kept(second, ended) is None
    assert second.due_ms == NOTHING_DUE


def test_what_is_past_its_time_and_must_stay_stays_empty() -> None:
    rules = make_rules([], now_ms=NOW_MS + 1_000, compacts=False, lifetime=OWN_TIMES)

    emptied = kept(rules, mortal(None, 1, 1), must_stay=True)

    assert emptied is not None
    assert (verify_batch(emptied).count, verify_batch(emptied).last_offset) == (0, 1)
