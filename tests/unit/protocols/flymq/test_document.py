"""The page about the FlyMQ listener lists the layouts that are read and written."""

import pytest

from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import OPERATIONS, Opcode
from millstream.protocols.flymq.wire.shapes import fields_of
from tests.support.source_tree import ROOT

PAGE = (ROOT / "docs" / "flymq.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("opcode", OPERATIONS)
def test_the_layout_of_an_opcode_stands_in_its_row(opcode: Opcode) -> None:
    operation = OPERATIONS[opcode]
    layouts = [fields_of(form).layout for form in operation.requests]
    asked = " or ".join(f"`{layout}`" for layout in layouts) if layouts[0] else "nothing"
    answered = f"`{fields_of(operation.reply).layout}`"

    assert f"| {opcode:02X} {opcode.name} | {asked} | {answered} |\n" in PAGE


def test_the_layout_of_an_error_stands_in_its_row() -> None:
    assert f"| FF ERROR | never | `{fields_of(bodies.Failure).layout}` |\n" in PAGE
