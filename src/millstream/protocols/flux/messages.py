"""Formats records as MSG frames, with the number that names the record.

A connection gets headers or not. A record of another protocol may have any subject; characters that
would end a word or a line early are replaced.
"""

from collections.abc import Iterable, Sequence

from millstream.codec.records import Record
from millstream.engine.publish.sequence_numbers import sequence_of
from millstream.engine.publish.subjects import subject_of
from millstream.engine.push import Delivered, DeliveredRun
from millstream.engine.topics import Topics
from millstream.errors import RequestError
from millstream.model import Session, TopicPartition
from millstream.protocols.flux.wire import replies

SUBJECTS_KEPT_MAX = 1_024
_SID_MARK = b"\n"  # Stands for a sid, which follows the subject; no subject contains it.
NO_SEQUENCE = 0  # Of a record whose topic or partition is beyond the range of numbers.


class Messages:
    """One connection's view of records."""

    def __init__(self, topics: Topics, session: Session) -> None:
        self.has_headers = False
        self._topics = topics
        self._session = session
        self._subjects: dict[str, bytes] = {}

    def encode(self, delivered: Sequence[Delivered], sid: bytes) -> bytes:
        """Frames in one buffer: they leave in one write."""
        if isinstance(delivered, DeliveredRun):
            return sid.join(self._around_sids(delivered))
        frames = []
        last: TopicPartition | None = None
        first_sequence = NO_SEQUENCE
        subjects, has_headers = self._subjects, self.has_headers
        for target, record, name, _ in delivered:
            if target is not last:
                last, first_sequence = target, self._first_sequence(target)
            subject = subjects.get(name) or self._subject(name)
            offset, _, _, value, headers = record
            sequence = first_sequence + offset if first_sequence else NO_SEQUENCE
            if value is None:
                value = b""
            if has_headers:
                frames.append(replies.message_with_headers(subject, sid, sequence, value, headers))
            else:
                frames.append(replies.MESSAGE % (subject, sid, len(value), sequence, value))
        return b"".join(frames)

    def _around_sids(self, run: DeliveredRun) -> list[bytes]:
        """The bytes of a run's frames between their sids, made once for all its subscribers."""
        first_sequence = self._first_sequence(run[0].target)
        key = (self.has_headers, first_sequence)
        pieces = run.encoded.get(key)
        if pieces is None:
            pieces, end = [], b""
            for _, record, name, _ in run:
                sequence = first_sequence + record.offset if first_sequence else NO_SEQUENCE
                subject = self._subjects.get(name) or self._subject(name)
                value = record.value or b""
                if self.has_headers:
                    frame = replies.message_with_headers(
                        subject, _SID_MARK, sequence, value, record.headers
                    )
                else:
                    frame = replies.MESSAGE % (subject, _SID_MARK, len(value), sequence, value)
                before, _, behind = frame.partition(_SID_MARK)
                pieces.append(end + before)
                end = behind
            pieces.append(end)
            run.encoded[key] = pieces
        return pieces

    def encode_records(self, records: Iterable[tuple[TopicPartition, Record]], sid: bytes) -> bytes:
        return self.encode(
            [
                Delivered(at, record, subject_of(at.topic, record.headers), 1)
                for at, record in records
            ],
            sid,
        )

    def _first_sequence(self, target: TopicPartition) -> int:
        """Asked for each batch: a topic of the same name may be another one by now."""
        try:
            topic = self._topics.describe(self._session, target.topic)
            return sequence_of(topic.number, target.partition, 0)
        except RequestError:
            return NO_SEQUENCE

    def _subject(self, name: str) -> bytes:
        if len(self._subjects) >= SUBJECTS_KEPT_MAX:
            self._subjects.clear()
        clean = "".join("_" if c.isspace() or not c.isprintable() else c for c in name) or "_"
        encoded = self._subjects[name] = clean.encode("utf-8", "replace")
        return encoded
