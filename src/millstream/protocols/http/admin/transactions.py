"""Transactions: list, describe, and abort one that hangs."""

import asyncio

import msgspec

from millstream.engine.transactions.service import TransactionView as EngineView
from millstream.errors import InvalidRequest, TransactionInProgress
from millstream.internal_topics.transactions import TransactionState
from millstream.protocols.http.calls import Call, Listing, Page
from millstream.protocols.http.paging import name_filter, page
from millstream.protocols.http.router import Params, Right, Route

ABORT_S_MAX = 10.0
_STATES = {state.name.lower(): state for state in TransactionState}


class TransactionParams(Params, frozen=True, kw_only=True):
    transactional_id: str


class TransactionListing(Listing, frozen=True, kw_only=True):
    state: str = ""
    age_ms_min: int = -1  # Only transactions that are open for so long.


class Target(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int


class TransactionView(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    age_ms: int | None  # Null outside of a transaction.
    partitions: list[Target]


async def list_transactions(call: Call, params: TransactionListing) -> Page[TransactionView]:
    if params.state and params.state.lower() not in _STATES:
        raise InvalidRequest(f"state = {params.state!r}: expected {', '.join(sorted(_STATES))}")
    fits = name_filter(params.name)
    views = call.services.transactions.list(
        call.session,
        states=[_STATES[params.state.lower()]] if params.state else (),
        running_ms_min=params.age_ms_min,
    )
    fitting = sorted((view for view in views if fits(view.transactional_id)), key=_id)
    chosen, following = page(fitting, _id, params.after, call.limit(params.limit))
    return Page(items=[_view(call, view) for view in chosen], next=following)


async def describe_transaction(call: Call, params: TransactionParams) -> TransactionView:
    view = await call.services.transactions.describe(call.session, params.transactional_id)
    return _view(call, view)


async def abort_transaction(call: Call, params: TransactionParams) -> TransactionView:
    """Fence the producer; what it had open is aborted."""
    transactions = call.services.transactions
    view = await transactions.describe(call.session, params.transactional_id)
    try:
        await transactions.init(call.session, params.transactional_id, timeout_ms=view.timeout_ms)
    except TransactionInProgress:  # The abort is decided: its markers are being written.
        until = asyncio.get_running_loop().time() + ABORT_S_MAX
        await transactions.wait_ended(call.session, params.transactional_id, until=until)
    return await describe_transaction(call, params)


def _id(view: EngineView) -> str:
    return view.transactional_id


def _view(call: Call, view: EngineView) -> TransactionView:
    age_ms = call.services.clock.now_ms() - view.started_ms
    return TransactionView(
        transactional_id=view.transactional_id,
        state=view.state.name.lower(),
        producer_id=view.producer.producer_id,
        producer_epoch=view.producer.epoch,
        timeout_ms=view.timeout_ms,
        age_ms=None if view.started_ms < 0 else max(0, age_ms),
        partitions=[Target(topic=t.topic, partition=t.partition) for t in view.targets],
    )


_ID = "transactional_id:{transactional_id}"

ROUTES = (
    Route(
        method="GET",
        path="/v1/transactions",
        handler=list_transactions,
        summary="List transactional ids with their state",
        params=TransactionListing,
        reply=Page[TransactionView],
        gathered_by="transactional_id",
        rights=(Right("DESCRIBE", "transactional_id:*"),),
    ),
    Route(
        method="GET",
        path="/v1/transactions/{transactional_id}",
        handler=describe_transaction,
        summary="Describe a transactional id",
        params=TransactionParams,
        reply=TransactionView,
        rights=(Right("DESCRIBE", _ID),),
    ),
    Route(
        method="POST",
        path="/v1/transactions/{transactional_id}:abort",
        handler=abort_transaction,
        summary="Abort the open transaction of an id, and fence its producer",
        params=TransactionParams,
        reply=TransactionView,
        rights=(Right("DESCRIBE", _ID), Right("WRITE", _ID)),
    ),
)
