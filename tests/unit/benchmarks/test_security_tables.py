"""The goals of security: parts of plain text, and beside Apache Kafka where it can be had."""

from benchmarks.kafka.peers import KAFKA, MILLSTREAM
from benchmarks.security.__main__ import figures_of
from benchmarks.security.cells import FETCH, SMALL, Timing
from benchmarks.security.peers import AT_REST, PLAIN, SASL, SASL_TLS, TLS


def timing(cpu_us: float, request_s: float = 0.001) -> Timing:
    """Of three turns; the second found the cores busy."""
    return Timing(
        cpu_us=[cpu_us, cpu_us * 2, cpu_us],
        request_s=[request_s, request_s * 10, request_s],
        bytes_moved=1_000_000,
    )


def measured(tls: float = 800.0) -> dict[tuple[str, str], Timing]:
    return {
        (MILLSTREAM, PLAIN): timing(400),
        (MILLSTREAM, SASL): timing(410),
        (MILLSTREAM, TLS): timing(tls, 0.002),
        (MILLSTREAM, SASL_TLS): timing(tls, 0.002),
        (MILLSTREAM, AT_REST): timing(900),
    }


def test_parts_of_plain_text_are_held_against_their_goals() -> None:
    figures = {figure.name: figure for figure in figures_of(FETCH, measured())}

    assert figures[f"{FETCH}: {SASL}, part of plain"].is_met
    assert figures[f"{FETCH}: {AT_REST}, part of plain"].is_met is False
    more = figures[f"{FETCH}: tls, more than plain"]
    assert (round(more.value, 3), more.unit, more.is_met) == (0.4, "CPU-s/GB", True)
    assert figures[f"{FETCH}: tls, part of plain"].value == 0.5
    assert not any("Kafka" in name for name in figures)


def test_tls_stands_beside_that_of_kafka() -> None:
    timings = measured() | {(KAFKA, TLS): timing(2_000, 0.001)}
    figures = {figure.name: figure for figure in figures_of(SMALL, timings)}

    beside = figures[f"{SMALL}: tls, part of Kafka's tls"]
    assert (beside.value, beside.is_met) == (0.5, False)
    assert f"{SMALL}: tls, more than plain" not in figures, "small requests have no goal by size"


def test_turns_are_compared_with_those_beside_them() -> None:
    """A machine that is busy for some turns slows down both brokers, and no part of the rate."""
    plain = Timing(cpu_us=[100, 900, 100], request_s=[0.1, 0.9, 0.1], bytes_moved=1_000_000)
    tls = Timing(cpu_us=[200, 1800, 200], request_s=[0.9, 0.2, 0.9], bytes_moved=1_000_000)

    assert tls.part_of(plain) == 0.5
    assert round(tls.more_than(plain), 3) == 0.1
    assert round(tls.rate / plain.rate, 3) == 0.5
