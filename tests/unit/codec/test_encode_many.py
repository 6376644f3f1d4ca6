"""Messages by template become the bytes that `encode_batch` makes of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.batch import Header, verify_batch
from millstream.codec.encoding import (
    _LONG,
    _VARINTS,
    Message,
    MessageTemplate,
    TemplatedMessages,
    _varint,
    encode_batch,
    encode_many,
    message_bytes_max,
    message_sizes_max,
    select_messages,
)
from millstream.codec.records import Record

TIME_MS = 1_700_000_000_000
HEADERS = (("ms-subject", b"orders.us"), ("null", None))
COUNTS = [1, 2, 63, 64, 65, 200, 8_191, 8_192, 8_193]

headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=2)
templates = st.builds(
    MessageTemplate, st.none() | st.binary(max_size=80), st.integers(0, 130), headers.map(tuple)
)


def complete(messages: TemplatedMessages) -> tuple[Header, bytes]:
    data = encode_batch([Record(at, TIME_MS, *message) for at, message in enumerate(messages)])
    return verify_batch(data), data


def filled(*order: MessageTemplate) -> TemplatedMessages:
    return TemplatedMessages(
        order, [bytes([at % 256]) * template.size for at, template in enumerate(order)]
    )


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("size", [0, 1, 63, 64, 8_192])
def test_messages_of_one_template(count: int, size: int) -> None:
    if count * size > 2**21:
        count = 2**21 // size
    run = filled(*[MessageTemplate(b"orders.us", size, HEADERS)] * count)

    assert encode_many(run, TIME_MS) == complete(run)


@pytest.mark.parametrize("count", COUNTS)
def test_templates_that_take_turns(count: int) -> None:
    few = [
        MessageTemplate(b"a", 1, HEADERS),
        MessageTemplate(None, 60, ()),
        MessageTemplate(b"", 0, (("h", None),)),
    ]
    mixed = filled(*[few[at % 3] for at in range(count)])

    assert encode_many(mixed, TIME_MS) == complete(mixed)


@settings(deadline=None)
@given(
    st.lists(templates, min_size=1, max_size=4), st.lists(st.integers(0, 3), min_size=1), st.data()
)
def test_any_mix_of_templates(
    few: list[MessageTemplate], order: list[int], data: st.DataObject
) -> None:
    chosen = [few[number % len(few)] for number in order]
    values = [
        data.draw(st.binary(min_size=template.size, max_size=template.size)) for template in chosen
    ]
    mixed = TemplatedMessages(chosen, values)

    header, encoded = encode_many(mixed, TIME_MS)

    assert (header, encoded) == encode_many(list(mixed), TIME_MS) == complete(mixed)
    assert len(encoded) <= 61 + sum(message_sizes_max(mixed))


@given(st.lists(templates, min_size=1, max_size=9))
def test_sizes_are_the_same_with_and_without_templates(few: list[MessageTemplate]) -> None:
    mixed = filled(*few)

    each = list(map(message_bytes_max, mixed))

    assert list(message_sizes_max(mixed)) == list(message_sizes_max(list(mixed))) == each


def test_a_value_of_another_size_than_its_template_is_refused() -> None:
    first, other = MessageTemplate(b"a", 1, ()), MessageTemplate(b"b", 2, ())

    for mixed in (
        TemplatedMessages([first, first], [b"1", b"22"]),
        TemplatedMessages([first, other], [b"1", b"2"]),
    ):
        with pytest.raises(AssertionError):
            encode_many(mixed, TIME_MS)


def test_templated_messages_are_a_sequence_of_messages() -> None:
    first, other = MessageTemplate(b"k", 1, HEADERS), MessageTemplate(None, 2, ())
    mixed = TemplatedMessages([first, other, first], [b"1", b"22", b"3"])

    listed: list[Message] = [(b"k", b"1", HEADERS), (None, b"22", ()), (b"k", b"3", HEADERS)]
    assert list(mixed) == listed
    assert mixed[1] == listed[1]
    assert list(mixed[1:]) == listed[1:]
    assert (
        list(select_messages(mixed, [0, 2]))
        == select_messages(listed, [0, 2])
        == [listed[0], listed[2]]
    )
    assert select_messages(mixed, range(3)) is mixed
    assert len(mixed) == 3


def test_the_table_of_varints_has_what_the_encoder_writes() -> None:
    assert len(_VARINTS) == _LONG[1]
    assert all(_varint(value) == encoded for value, encoded in enumerate(_VARINTS))
