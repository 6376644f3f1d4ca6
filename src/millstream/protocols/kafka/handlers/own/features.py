"""Features and their levels: what ApiVersions says of them, and UpdateFeatures (KIP-584).

Kafka's own features have one level in this version. `cluster.version` is ours: its level is raised
once every node of the cluster knows it.
"""

from millstream.control.levels import FEATURE
from millstream.errors import RequestError
from millstream.errors.cluster import LevelRefused
from millstream.kafka_wire.apis.cluster import UpdateFeaturesRequest, UpdateFeaturesResponse
from millstream.kafka_wire.apis.discovery import ApiVersionsResponse
from millstream.kafka_wire.apis.table import FEATURES, FINALIZED, LEVELS
from millstream.kafka_wire.error_codes import ErrorCode, code_for
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler

UPDATES_MAX = 100
_TOP_LEVEL_ONLY = 2  # UpdateFeatures since then has one error for all.
_Supported = ApiVersionsResponse.SupportedFeature
_Finalized = ApiVersionsResponse.FinalizedFeature


def in_use(context: Context) -> tuple[list[_Supported], list[_Finalized], int]:
    """The features that this node knows, the levels in use, and the epoch of these."""
    ours = context.broker.members.features
    low, high = ours.known
    level = _Finalized(name=FEATURE, max_version_level=ours.level, min_version_level=ours.level)
    return (
        [*FEATURES, _Supported(name=FEATURE, min_version=low, max_version=high)],
        [*FINALIZED, level],
        ours.epoch,
    )


async def update_features(
    context: Context, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """All updates are made, or none."""
    problems: dict[str, RequestError | None] = {}
    try:
        context.broker.cluster.check_upgrade(context.session)  # The right to do any of it.
    except LevelRefused:
        pass
    except RequestError as problem:
        return UpdateFeaturesResponse(error_code=code_for(problem), error_message=str(problem))
    names = [update.feature for update in request.feature_updates]
    if not 0 < len(names) <= UPDATES_MAX or len(set(names)) != len(names):
        return UpdateFeaturesResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"1 to {UPDATES_MAX} features are updated at once, each by one level",
        )
    for update in request.feature_updates:
        try:
            _check(context, update)
            problems[update.feature] = None
        except LevelRefused as problem:
            problems[update.feature] = problem
    if not any(problems.values()) and not request.validate_only:
        for update in request.feature_updates:
            if update.feature == FEATURE:
                try:
                    await context.broker.cluster.upgrade(context.session, update.max_version_level)
                except RequestError as problem:
                    problems[FEATURE] = problem
    return _answer(context.version, problems)


def _check(context: Context, update: UpdateFeaturesRequest.Update) -> None:
    name, level = update.feature, update.max_version_level
    if name == FEATURE:
        context.broker.cluster.check_upgrade(context.session, level)
        return
    if name not in LEVELS:
        known = ", ".join(sorted([*LEVELS, FEATURE]))
        raise LevelRefused(f"there is no feature {name[:100]!r}; there are {known}")
    _, _, current = LEVELS[name]
    if level != current:
        raise LevelRefused(f"{name} is {current} in this version, and cannot become {level}")


def _answer(version: int, problems: dict[str, RequestError | None]) -> UpdateFeaturesResponse:
    if version < _TOP_LEVEL_ONLY:
        return UpdateFeaturesResponse(
            results=[
                UpdateFeaturesResponse.Result(
                    feature=name,
                    error_code=ErrorCode.NONE if problem is None else _code(problem),
                    error_message=None if problem is None else str(problem),
                )
                for name, problem in problems.items()
            ]
        )
    for problem in problems.values():
        if problem is not None:
            return UpdateFeaturesResponse(error_code=_code(problem), error_message=str(problem))
    return UpdateFeaturesResponse()


def _code(problem: RequestError) -> ErrorCode:
    is_level = isinstance(problem, LevelRefused)
    return ErrorCode.INVALID_UPDATE_VERSION if is_level else code_for(problem)


HANDLERS: dict[int, Handler] = {57: update_features}
