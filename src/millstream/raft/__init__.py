"""Consensus on one log: pure, driven by ticks and messages, answered with effects."""

from millstream.raft.core import Core
from millstream.raft.log_view import Base, LogView
from millstream.raft.member import Effects, Timing
from millstream.raft.messages import Message
from millstream.raft.roles import Role
from millstream.raft.tracker import Refusal

__all__ = ["Core", "Effects", "Timing", "Role", "Refusal", "Message", "LogView", "Base"]
