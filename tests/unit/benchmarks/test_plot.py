"""The picture of the rates is that of the results, and its bars are as long as they say."""

import re
from xml.etree import ElementTree

from benchmarks.plot import ACTS, FIGURES, LABELS, PEERS, PICTURE, SETTINGS, WIDTH, drawn, picture


def test_the_picture_of_the_documents_is_that_of_the_results() -> None:
    assert PICTURE.read_text(encoding="utf-8") == drawn(), "run: python -m benchmarks.plot"


def test_bars_are_medians_and_the_longest_takes_the_room() -> None:
    samples = [
        {"peer": peer, "name": act, "setting": setting, "durability": "sync", "value": value}
        for peer in PEERS
        for act in ACTS
        for setting in SETTINGS
        for value in ((9_000, 1_000, 2_000) if peer == "Millstream" else (500, 1_000, 9_999))
    ]
    svg = picture(samples)

    ElementTree.fromstring(svg)
    room = WIDTH - LABELS - FIGURES
    widths = {int(width) for width in re.findall(r"x='200' y='\d+' width='(\d+)' height", svg)}
    assert widths - {11} == {room, room // 2}
    assert svg.count(">2,000/s<") == svg.count(">1,000/s<") == len(ACTS) * len(SETTINGS)
