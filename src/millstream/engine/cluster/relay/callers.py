"""The client of a request that another node passes on, as it crosses in a call."""

from dataclasses import replace

import msgspec

from millstream.model import Principal, Session


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    principal: str
    roles: tuple[str, ...]
    mechanism: str
    listener: str
    is_tls: bool
    client_id: str
    address: str
    protocol: str

    def session(self) -> Session:
        """The session here. When it expires is the first node's concern: clocks of loops differ."""
        return Session(
            principal=Principal.parse(self.principal),
            roles=self.roles,
            mechanism=self.mechanism,
            listener=self.listener,
            is_tls=self.is_tls,
            client_id=self.client_id,
            address=self.address,
            protocol=self.protocol,
            is_relayed=True,
        )


def caller_of(session: Session) -> Caller:
    return Caller(
        principal=str(session.principal),
        roles=session.roles,
        mechanism=session.mechanism,
        listener=session.listener,
        is_tls=session.is_tls,
        client_id=session.client_id,
        address=session.address,
        protocol=session.protocol,
    )


def is_relayable(session: Session) -> bool:
    """Whether its requests are passed on to the node that can serve them: not those of Kafka's
    clients, which go there themselves, and none twice."""
    return not session.is_relayed and session.protocol != "kafka"


def first_hand(session: Session) -> Session:
    """The session for work that begins here: what it needs of other nodes is asked of them."""
    return replace(session, is_relayed=False) if session.is_relayed else session
