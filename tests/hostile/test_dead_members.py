"""A member that dies while its JoinGroup or SyncGroup waits takes no part in the rebalance."""

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from millstream.kafka_wire.apis.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.headers import decode_response
from tests.hostile.broker import SECONDS_MAX, Broker, Client, serving, spell

JOIN, SYNC, DESCRIBE = 11, 14, 15
SESSION_MS = 2_000
_groups = count()


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    log_path: Path = tmp_path_factory.mktemp("broker") / "log"
    limits = {"SESSION_TIMEOUT_MS_MIN": "500", "INITIAL_REBALANCE_DELAY_MS": "0"}
    settings: dict[str, Any] = {
        f"MILLSTREAM_TIMING__GROUP_{name}": value for name, value in limits.items()
    }
    with serving(log_path, **settings) as running:
        yield running
        running.assert_unharmed()


@pytest.fixture
def group() -> str:
    return f"group-{next(_groups)}"


def join_request(group: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
    )


def join(client: Client, group: str, member_id: str = "") -> JoinGroupResponse:
    answer = client.ask(JOIN, 3, join_request(group, member_id))
    assert isinstance(answer, JoinGroupResponse)
    return answer


def park_join(client: Client, group: str, member_id: str = "") -> None:
    client.send(spell(JOIN, 3, join_request(group, member_id), number=7))


def joined(client: Client) -> JoinGroupResponse:
    _, answer = decode_response(APIS[JOIN], 3, client.frame())
    assert isinstance(answer, JoinGroupResponse)
    return answer


def sync(client: Client, group: str, answer: JoinGroupResponse) -> None:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        assignments=[],
    )
    synced = client.ask(SYNC, 2, request)
    assert isinstance(synced, SyncGroupResponse)
    assert synced.error_code == 0


def die(client: Client, broker: Broker) -> None:
    """Close the connection, and wait until the broker has closed its side too."""
    before = broker.open_files()
    client.socket.close()
    deadline = time.monotonic() + SECONDS_MAX
    while broker.open_files() >= before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for(client: Client, group: str, state: str, *, members: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        answer = client.ask(DESCRIBE, 4, DescribeGroupsRequest(groups=[group]))
        assert isinstance(answer, DescribeGroupsResponse)
        (described,) = answer.groups
        if (described.group_state, len(described.members)) == (state, members):
            return
        assert time.monotonic() < deadline, described
        time.sleep(0.01)


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_newcomer_that_died_is_not_in_the_next_generation(
    quick_broker: Broker, group: str, is_reset: bool
) -> None:
    with Client(quick_broker) as member, Client(quick_broker) as watcher:
        first = join(member, group)
        sync(member, group, first)
        newcomer = Client(quick_broker)
        park_join(newcomer, group)
        wait_for(watcher, group, "PreparingRebalance", members=2)

        newcomer.reset() if is_reset else newcomer.socket.close()
        wait_for(watcher, group, "PreparingRebalance", members=1)
        second = join(member, group, first.member_id)

        assert [member.member_id for member in second.members] == [first.member_id]


def test_a_leader_that_died_while_it_waited_leads_no_generation(
    quick_broker: Broker, group: str
) -> None:
    with Client(quick_broker) as member, Client(quick_broker) as watcher:
        leader = Client(quick_broker)
        alone = join(leader, group)
        sync(leader, group, alone)
        park_join(member, group)
        wait_for(watcher, group, "PreparingRebalance", members=2)
        both = join(leader, group, alone.member_id)
        second = joined(member)
        sync(leader, group, both)
        sync(member, group, second)
        park_join(leader, group, alone.member_id)
        wait_for(watcher, group, "PreparingRebalance", members=2)

        die(leader, quick_broker)
        started = time.monotonic()
        third = join(member, group, second.member_id)

        assert third.leader == second.member_id
        assert [member.member_id for member in third.members] == [second.member_id]
        assert time.monotonic() - started < SESSION_MS / 1000 + 3
        sync(member, group, third)


def test_a_member_that_reconnects_in_time_takes_part_under_its_id(
    quick_broker: Broker, group: str
) -> None:
    with Client(quick_broker) as member, Client(quick_broker) as watcher:
        leader = Client(quick_broker)
        alone = join(leader, group)
        sync(leader, group, alone)
        park_join(member, group)
        wait_for(watcher, group, "PreparingRebalance", members=2)
        park_join(leader, group, alone.member_id)
        second = joined(member)
        sync_later = joined(leader)
        sync(leader, group, sync_later)
        sync(member, group, second)
        park_join(leader, group, alone.member_id)
        wait_for(watcher, group, "PreparingRebalance", members=2)
        die(leader, quick_broker)

        with Client(quick_broker) as again:
            park_join(again, group, alone.member_id)
            third = join(member, group, second.member_id)
            back = joined(again)

        assert back.error_code == third.error_code == 0
        assert back.leader == third.leader == alone.member_id
        assert len(back.members) == 2
