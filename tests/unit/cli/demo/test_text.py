"""Every event of the demonstration has its words."""

import sys
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console

from millstream.cli.demo.text import _TEXTS, figures_table, name_of, program, text
from millstream.demo import events


def test_every_event_has_words_but_figures_which_have_a_table() -> None:
    assert set(_TEXTS) == set(get_args(events.Event)) - {events.Figures}


def test_programs_read_names_with_underscores() -> None:
    assert name_of(events.Killed()) == "killed"
    assert name_of(events.TourDone(1.0)) == "tour_done"


def test_topics_and_groups_stand_side_by_side() -> None:
    figures = events.Figures(
        seconds=1.0,
        topics=(
            events.TopicFigures(topic="orders", offsets=52_340, per_second=99.6),
            events.TopicFigures(topic="orders.valid", offsets=51_816, per_second=98.0),
        ),
        groups=(events.GroupFigures(group="billing", topic="orders", lag=None),),
    )
    console = Console(width=100)
    with console.capture() as captured:
        console.print(figures_table(figures))

    assert [line.split() for line in captured.get().splitlines()] == [
        ["TOPIC", "OFFSETS", "PER", "SECOND", "GROUP", "READS", "LAG"],
        ["orders", "52,340", "100", "billing", "orders", "-"],
        ["orders.valid", "51,816", "98"],
    ]


def test_commands_of_spark_are_named_where_it_runs() -> None:
    def text_of(*, has_spark: bool) -> str:
        return text(
            events.GoesOn(
                address="h:1", console="http://h:2/", orders_per_second=1, has_spark=has_spark
            )
        )

    assert "export MILLSTREAM_BOOTSTRAP=h:1" in text_of(has_spark=False)
    assert "http://h:2/ shows it all in a browser" in text_of(has_spark=False)
    assert "orders-by-minute" not in text_of(has_spark=False)
    assert "millstream subscribe orders-by-minute" in text_of(has_spark=True)


def test_commands_work_when_they_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = Path(sys.executable).parent
    monkeypatch.setenv("PATH", str(installed))
    assert program() == "millstream"

    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(installed.parents[1])
    assert program() == f"{installed.parts[-2]}/{installed.parts[-1]}/millstream"
    monkeypatch.chdir("/usr")
    assert program() == str(installed / "millstream")
