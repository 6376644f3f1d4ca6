"""FlyMQ's filters find a text in any case, also where records are passed over unread."""

from hypothesis import example, given
from hypothesis import strategies as st

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_all
from millstream.codec.rewrite import filter_steps
from millstream.cooperative import all_at_once
from millstream.engine.filters.filter import flymq_filter

# With both characters whose lower case begins with a letter of ASCII: the signs of Kelvin, and İ.
LETTERS = "aAkKiI.\N{KELVIN SIGN}\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}äÄ"
words = st.text(LETTERS, max_size=4)
contents = st.one_of(words.map(str.encode), st.none(), st.binary(max_size=4))


def naive(text: str, content: bytes | None) -> bool:
    return content is not None and text.lower() in content.decode(errors="replace").lower()


@given(st.text("aAkKiI", min_size=1, max_size=3), st.lists(st.tuples(contents, contents)))
@example("ki", [(b"", "\N{KELVIN SIGN}\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}".encode())])
def test_a_text_is_found_wherever_its_lower_case_is(
    text: str, fields: list[tuple[bytes | None, bytes | None]]
) -> None:
    filter_ = flymq_filter(text)
    sent = [Record(at, 0, key, value) for at, (key, value) in enumerate(fields)]
    expected = [sample for sample in sent if naive(text, sample.key) or naive(text, sample.value)]
    assert [record for record in sent if filter_.matches(record)] == expected
    if not sent:
        return

    assert filter_.required.texts
    steps = filter_steps(
        encode_batch(sent), filter_.matches, decompressed_bytes_max=2**20, required=filter_.required
    )
    kept = all_at_once(steps)

    passed = [] if kept is None else decode_all(kept, decompressed_bytes_max=2**20)
    assert passed == expected


def test_no_other_character_has_a_letter_of_ascii_in_its_lower_case() -> None:
    others = [chr(code) for code in range(128, 0x110000)]

    collected = [other for other in others if any(part.isascii() for part in other.lower())]

    assert collected == ["\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "\N{KELVIN SIGN}"]
