"""Features as Kafka's tools see them: ApiVersions names the levels, UpdateFeatures raises them."""

import pytest

from millstream.engine.gate import Everyone, Operation
from millstream.kafka_wire.apis.cluster import UpdateFeaturesRequest, UpdateFeaturesResponse
from millstream.kafka_wire.apis.discovery import ApiVersionsRequest, ApiVersionsResponse
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import CLUSTER_LEVELS, Session
from millstream.server.node import Node
from tests.support.nodes import SESSION, running_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import STRANGER, ask

HIGHEST = CLUSTER_LEVELS.highest


class OnlyTests(Everyone):
    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return session == SESSION


async def update(
    node: Node, *updates: tuple[str, int], version: int = 2, session: Session = SESSION
) -> UpdateFeaturesResponse:
    shape = UpdateFeaturesRequest.Update
    request = UpdateFeaturesRequest(
        feature_updates=[shape(feature=name, max_version_level=level) for name, level in updates],
    )
    return await ask(node, request, UpdateFeaturesResponse, version=version, session=session)


def test_api_versions_names_the_levels_that_are_known_and_in_use() -> None:
    async def story() -> None:
        async with running_node() as node:
            answer = await ask(node, ApiVersionsRequest(), ApiVersionsResponse, version=4)
        known = {each.name: each for each in answer.supported_features}["cluster.version"]
        in_use = {each.name: each.max_version_level for each in answer.finalized_features}
        assert (known.min_version, known.max_version) == tuple(CLUSTER_LEVELS)
        assert in_use["cluster.version"] == HIGHEST  # A node alone uses all that it knows.
        assert in_use["transaction.version"] == 2
        assert answer.finalized_features_epoch >= 0

    run(story())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_levels_that_are_in_use_already_are_taken(version: int) -> None:
    async def story() -> None:
        async with running_node() as node:
            answer = await update(
                node, ("transaction.version", 2), ("cluster.version", HIGHEST), version=version
            )
        assert answer.error_code == 0
        named = [(each.feature, each.error_code) for each in answer.results]
        both = [("transaction.version", 0), ("cluster.version", 0)]
        assert named == (both if version < 2 else [])

    run(story())


@pytest.mark.parametrize(
    ("name", "level", "problem"),
    [
        ("metadata.version", 7, "metadata.version is 25 in this version"),
        ("cluster.version", HIGHEST + 1, "a node alone"),
        ("cluster.version", 0, "a node alone"),
        ("no.such", 1, "there is no feature 'no.such'; there are cluster.version, "),
    ],
)
def test_a_level_that_cannot_be_is_refused_by_a_sentence(
    name: str, level: int, problem: str
) -> None:
    async def story() -> None:
        async with running_node() as node:
            answer = await update(node, (name, level))
            older = await update(node, (name, level), version=1)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert problem in (answer.error_message or "")
        [result] = older.results
        assert (older.error_code, result.error_code) == (0, ErrorCode.INVALID_UPDATE_VERSION)

    run(story())


def test_nothing_and_one_feature_twice_are_refused() -> None:
    async def story() -> None:
        async with running_node() as node:
            for updates in ((), (("group.version", 1), ("group.version", 2))):
                answer = await update(node, *updates)
                assert answer.error_code == ErrorCode.INVALID_REQUEST

    run(story())


def test_a_stranger_raises_nothing() -> None:
    async def story() -> None:
        async with running_node(policy=OnlyTests()) as node:
            answer = await update(node, ("group.version", 1), session=STRANGER)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(story())
