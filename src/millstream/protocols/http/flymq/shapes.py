"""What FlyMQ's routes share: how one is declared, and the answer to a change."""

from http import HTTPStatus
from typing import Any

import msgspec

from millstream.protocols.http.router import Handler, Needs, Params, Right, Route

PREFIX = "/api/v1"
CLUSTER = "cluster:kafka-cluster"


class Done(msgspec.Struct, frozen=True, kw_only=True):
    success: bool = True
    message: str = "OK"


# Any: types of bodies and replies, as in `Route`.
def route(
    method: str,
    path: str,
    handler: Handler,
    summary: str,
    *,
    rights: tuple[Right, ...] = (),
    params: type[Params] = Params,
    body: Any = None,
    reply: Any = None,
    status: HTTPStatus = HTTPStatus.OK,
    example: Any = None,
    needs: Needs = Needs.LOGIN,
    is_raw: bool = False,
) -> Route:
    return Route(
        method=method,
        path=PREFIX + path,
        handler=handler,
        summary=summary,
        rights=rights,
        params=params,
        body=body,
        reply=reply,
        status=status,
        example=example,
        needs=needs,
        is_raw=is_raw,
        hidden=True,
    )
