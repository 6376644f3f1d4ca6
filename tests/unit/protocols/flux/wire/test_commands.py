"""The grammar of Flux's lines, in both spellings where description and original disagree."""

import pytest

from millstream.protocols.flux.wire.commands import (
    USAGE,
    Acks,
    Command,
    FlowControl,
    Headers,
    Info,
    Join,
    Leave,
    Mistake,
    Nack,
    Ping,
    Pong,
    Pull,
    Reject,
    ReplayFirst,
    ReplayFrom,
    ReplayLast,
    ReplayOne,
    ReplayTime,
    Statistics,
    SubOrder,
    Subscribe,
    Unsubscribe,
    read_command,
)


def read(line: str, order: SubOrder = SubOrder.GROUP_FIRST) -> Command:
    return read_command(line.encode().split(), order)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("SUB orders.> s1", Subscribe("orders.>", "s1")),
        ("SUB orders workers s1", Subscribe("orders", "s1", group="workers")),
        ("SUB orders DURABLE:billing s1", Subscribe("orders", "s1", durable="billing")),
        ("SUB orders s1 DURABLE:billing", Subscribe("orders", "s1", durable="billing")),
        ("UNSUB s1", Unsubscribe("s1")),
        ("UNSUB s1 5", Unsubscribe("s1", 5)),
        ("ACK 5", Acks([(5, None)])),
        ("ACK 5 orders:billing", Acks([(5, "orders:billing")])),
        ("NACK 5", Nack((5, None))),
        ("NACK 5 s1", Nack((5, "s1"))),
        ("NACK 5 s1 250", Nack((5, "s1"), 250)),
        ("REJECT 5", Reject((5, None))),
        ("REJECT 5 s1", Reject((5, "s1"))),
        ("reject 5 s1 no such customer", Reject((5, "s1"), "no such customer")),
        ("PULL orders 10", Pull("orders", 10)),
        ("FLOWCTL s1 PUSH", FlowControl("s1", False)),
        ("FLOWCTL s1 pull 0 0 500", FlowControl("s1", True, None, None, 500)),
        ("FLOWCTL s1 PUSH 100.5 20", FlowControl("s1", False, 100.5, 20)),
        ("STATS", Statistics()),
        ("stats s1", Statistics("s1")),
        ("HEADERS ON", Headers(is_on=True)),
        ("HEADERS off", Headers(is_on=False)),
        ("REPLAY 5", ReplayOne(5)),
        ("REPLAY SEQ 5", ReplayFrom(5)),
        ("REPLAY seq 5 10", ReplayFrom(5, 10)),
        ("REPLAY FIRST", ReplayFirst()),
        ("REPLAY first 3", ReplayFirst(3)),
        ("REPLAY LAST", ReplayLast()),
        ("REPLAY last 5", ReplayLast(5)),
        ("REPLAY TIME 1700000000", ReplayTime(1_700_000_000_000)),
        ("REPLAY time 1700000000.5 7", ReplayTime(1_700_000_000_500, 7)),
        ("PING", Ping()),
        ("PONG", Pong()),
        ("INFO", Info()),
        ("JOIN n2 127.0.0.1:7002", Join("n2", "127.0.0.1:7002")),
        ("LEAVE n2", Leave("n2")),
    ],
)
def test_a_line_is_read(line: str, command: Command) -> None:
    assert read(line) == command


def test_the_group_may_come_last_as_the_description_has_it() -> None:
    assert read("SUB a s1 workers", SubOrder.SID_FIRST) == Subscribe("a", "s1", group="workers")
    assert read("SUB a DURABLE:b s1", SubOrder.SID_FIRST) == Subscribe("a", "s1", durable="b")


@pytest.mark.parametrize(
    "line",
    [
        "SUB",
        "SUB a",
        "SUB a b c d",
        "SUB a DURABLE: s1",
        "UNSUB",
        "UNSUB a b",
        "UNSUB a 1 2",
        "ACK",
        "ACK x",
        "ACK -1",
        "ACK 1 a b",
        "NACK",
        "REJECT",
        "REJECT soon",
        "NACK 1 s1 soon",
        "NACK 1 s1 5 5",
        "PULL a",
        "STATS a b",
        "HEADERS",
        "HEADERS maybe",
        "PING x",
        "INFO x",
        "JOIN a",
        "LEAVE",
    ],
)
def test_a_command_with_wrong_words_is_told_how_it_is_used(line: str) -> None:
    assert read(line) == Mistake(f"usage: {USAGE[line.split()[0]]}")


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("PULL a 0", "PULL a x", "PULL a -3"), "invalid count"),
        (("FLOWCTL", "FLOWCTL s", "FLOWCTL s PUSH 1 2 3 4"), "invalid FLOWCTL arguments"),
        (("FLOWCTL s PUSH x", "FLOWCTL s PULL inf", "FLOWCTL s PULL nan"), "invalid FLOWCTL arg"),
        (("FLOWCTL s PUSH 1 inf", "FLOWCTL s PUSH 1 1 nan"), "invalid FLOWCTL arguments"),
        (("FLOWCTL s SIDEWAYS",), "invalid mode (PUSH or PULL)"),
        (("REPLAY", "REPLAY x", "REPLAY FIRST 0", "REPLAY LAST 0"), "invalid replay mode"),
        (("REPLAY TIME", "REPLAY TIME x", "REPLAY TIME 1.x", "REPLAY SEQ"), "invalid replay mode"),
        (("REPLAY SEQ 1 2 3", "REPLAY TIME 1 0", "REPLAY TIME 9999999999999"), "invalid replay"),
    ],
)
def test_other_mistakes_have_the_words_of_the_original(lines: tuple[str, ...], text: str) -> None:
    for line in lines:
        mistake = read(line)

        assert isinstance(mistake, Mistake), line
        assert mistake.text.startswith(text), line


def test_a_long_word_is_not_told_back_whole() -> None:
    mistake = read("X" * 1_000)

    assert isinstance(mistake, Mistake)
    assert len(mistake.text) < 60
