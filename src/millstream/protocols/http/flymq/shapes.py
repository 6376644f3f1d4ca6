"""What FlyMQ's routes share: how one is declared, and the answer to a change."""

import msgspec

from millstream.protocols.http.router import routes_below

CLUSTER = "cluster:kafka-cluster"

route = routes_below("/api/v1")


class Done(msgspec.Struct, frozen=True, kw_only=True):
    success: bool = True
    message: str = "OK"
