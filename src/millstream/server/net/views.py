"""Connections and listeners as operators see them."""

import asyncio
from typing import TYPE_CHECKING

from millstream.protocols.http.context import NodeFigures, OpenConnection
from millstream.server.net.connection import Connection
from millstream.server.node import Node

if TYPE_CHECKING:
    from millstream.server.listeners import Listeners


def node_figures(node: Node, listeners: "Listeners | None") -> NodeFigures:
    replicas = node.hub.replicas.values()
    return NodeFigures(
        len(replicas),
        sum(replica.is_leader for replica in replicas),
        []
        if listeners is None
        else [
            (name, f"{each.address.host}:{each.address.port}", each.connection_count)
            for name, each in listeners.open.items()
        ],
    )


def open_connections(listeners: "Listeners | None") -> list[OpenConnection]:
    if listeners is None:
        return []
    now = asyncio.get_running_loop().time()
    return [
        OpenConnection(
            connection.number,
            name,
            listener.protocols,
            str(connection.session.principal),
            connection.session.client_id,
            connection.session.address,
            int((now - connection.opened_at) * 1000),
            connection.received_bytes,
            connection.is_throttled,
        )
        for name, listener in listeners.open.items()
        for connection in listener.connections
    ]


def cut_connection(listeners: "Listeners | None", number: int) -> bool:
    """End a connection now; False if there is no such one."""
    connection = _find(listeners, number)
    if connection is None:
        return False
    # After this turn: it may be the one that asks.
    asyncio.get_running_loop().call_soon(connection.drop)
    return True


def _find(listeners: "Listeners | None", number: int) -> Connection | None:
    for listener in [] if listeners is None else listeners.open.values():
        for connection in listener.connections:
            if connection.number == number:
                return connection
    return None
