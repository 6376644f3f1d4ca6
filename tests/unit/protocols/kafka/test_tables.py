"""The tables of Kafka messages are complete and agree with themselves and with the document."""

import re
from pathlib import Path

import msgspec

from millstream.kafka_wire.apis.table import APIS, OWN_KEYS_FIRST, Api
from millstream.kafka_wire.schema import Kind, Message, fields_of
from millstream.protocols.kafka.router import SERVED
from tests.support.each import check_each

# Every API that clients and Kafka's tools use, short of share and streams groups.
NEEDED = {
    *(0, 1, 2, 3),
    *range(8, 34),
    *(34, 35, 36, 37),
    *range(42, 52),
    *(55, 60, 61, 65, 66, 68, 69, 74, 75),
}


def parts_of(message: type[Message]) -> set[type[Message]]:
    children = {field.message for field in fields_of(message) if field.message is not None}
    return {message}.union(*(parts_of(child) for child in children))


def test_every_api_that_clients_need_has_a_table() -> None:
    assert NEEDED - set(APIS) == set()


def test_every_table_has_a_handler() -> None:
    assert set(APIS) == set(SERVED)


def test_request_and_response_belong_together() -> None:
    check_each(APIS.values(), check_names, name=lambda api: api.name)


def check_names(api: Api) -> None:
    assert api.request.__name__ == f"{api.name}Request"
    assert api.response.__name__ == f"{api.name}Response"
    assert 0 <= api.advertised_first <= api.first <= api.last


def test_a_field_that_some_version_lacks_has_a_default() -> None:
    check_each(APIS.values(), check_defaults, name=lambda api: api.name)


def check_defaults(api: Api) -> None:
    for part in parts_of(api.request) | parts_of(api.response):
        for field in fields_of(part):
            is_everywhere = field.versions.first <= api.first and field.versions.until >= api.last
            is_required = field.default is msgspec.NODEFAULT
            assert is_everywhere or not is_required, f"{part.__qualname__}.{field.name}"


def test_tags_live_in_flexible_versions_and_hold_no_records() -> None:
    check_each(APIS.values(), check_tags, name=lambda api: api.name)


def check_tags(api: Api) -> None:
    for part in parts_of(api.request) | parts_of(api.response):
        tagged = [field for field in fields_of(part) if field.versions.tag is not None]
        for field in tagged:
            assert field.versions.first >= api.flexible_since
            assert field.kind not in {Kind.RECORDS, Kind.SPLICE}
        assert len({field.versions.tag for field in tagged}) == len(tagged)


def test_the_document_has_every_api_in_the_versions_that_are_served() -> None:
    text = (Path(__file__).parents[4] / "docs/kafka.md").read_text(encoding="utf-8")
    for key in SERVED:
        api = APIS[key]
        if key < OWN_KEYS_FIRST:
            versions = f"{api.first}-{api.last}" if api.first < api.last else f"{api.first}"
            assert re.search(rf"\b{api.name} {versions}\b(?!-)", text), f"{api.name} {versions}"
