"""Pages of several nodes become one, and requests go to the node that can answer them."""

import asyncio

import msgspec
import pytest

from millstream.errors import CallRefused, NotCoordinator, PeerUnreachable
from millstream.model import NodeId, Session, user_principal
from millstream.protocols.http.calls import Page
from millstream.protocols.http.operate.forwarding import BODY_BYTES_MAX, Forwarding, merged
from millstream.protocols.http.paging import cursor_of
from millstream.protocols.http.wire.requests import Request

SESSION = Session(principal=user_principal("ann"), protocol="http")


class Item(msgspec.Struct, frozen=True):
    name: str


def page(names: str, following: str = "") -> Page[Item]:
    return Page(items=[Item(name) for name in names], next=cursor_of(following) or None)


def names(merged_page: Page[Item]) -> str:
    return "".join(item.name for item in merged_page.items)


def last(names: str) -> Page[Item]:
    return Page(items=[Item(name) for name in names])


def test_pages_are_put_together_in_order() -> None:
    together = merged([last("ac"), last("b"), last("")], "name", 10)

    assert names(together) == "abc"
    assert together.next is None


def test_a_page_has_no_more_items_than_were_asked_for() -> None:
    together = merged([last("ac"), last("bd")], "name", 3)

    assert names(together) == "abc"
    assert together.next == cursor_of("c")


def test_a_page_ends_where_the_first_of_its_parts_ends() -> None:
    # Behind `b` the first node may have more, so `z` of the other one has to wait.
    together = merged([page("a", "b"), last("z")], "name", 2)

    assert names(together) == "a"
    assert together.next == cursor_of("b")


def test_an_item_of_two_nodes_is_shown_once() -> None:
    assert names(merged([last("ab"), last("b")], "name", 10)) == "ab"


class Peers:
    """Calls that are refused."""

    def __init__(self, refusal: Exception) -> None:
        self.asked: list[NodeId] = []
        self._refusal = refusal

    async def ask(self, node: NodeId, method: str, payload: bytes, *, timeout_s: float) -> bytes:
        self.asked.append(node)
        raise self._refusal

    def tell(self, node: NodeId, method: str, payload: bytes) -> None:
        raise AssertionError

    def serve(self, method: str, handler: object) -> None:
        raise AssertionError


def request(body: bytes = b"") -> Request:
    return Request(
        method="GET",
        parts=("v1", "groups", "g"),
        raw_parts=("v1", "groups", "g"),
        query=(),
        headers={"authorization": "secret"},
        body=body,
        version="1.1",
        is_last=False,
        size=0,
    )


@pytest.mark.parametrize(
    "refusal", [PeerUnreachable(2, was_sent=False), CallRefused("CallRefused", "no such method")]
)
def test_a_node_that_cannot_be_asked_is_named(refusal: Exception) -> None:
    peers = Peers(refusal)
    forwarding = Forwarding(peers, me=NodeId(1), others=list)
    problem = NotCoordinator("g", 2)

    with pytest.raises(NotCoordinator, match="by node 2"):
        asyncio.run(forwarding.ask_instead(request(), SESSION, "id", problem))

    assert peers.asked == [2]


@pytest.mark.parametrize(
    ("leader", "body"), [(None, b""), (1, b""), (2, bytes(BODY_BYTES_MAX + 1))]
)
def test_what_cannot_be_passed_on_is_not(leader: int | None, body: bytes) -> None:
    peers = Peers(AssertionError())
    forwarding = Forwarding(peers, me=NodeId(1), others=list)

    with pytest.raises(NotCoordinator):
        asyncio.run(
            forwarding.ask_instead(request(body), SESSION, "id", NotCoordinator("g", leader))
        )

    assert peers.asked == []
