"""Decisions about rights, in this process: cached, uncached, and the fold of many rules."""

import time
import tracemalloc
from collections.abc import Callable

from benchmarks.report import Figure
from millstream.config import Config
from millstream.control.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from millstream.control.commands import AddAcls, AlterUsers, UserChange
from millstream.control.state import State
from millstream.engine.access.rights import Rights
from millstream.engine.gate import Gate, Operation
from millstream.metrics.values import Metrics
from millstream.model import Session, user_principal

ACLS_IN_A_COMMAND = 500
REPEATS = 20_000
ANN = Session(principal=user_principal("ann"), mechanism="TLS", address="10.0.0.7")


def acl(number: int) -> Acl:
    return Acl(
        resource_type=ResourceType.TOPIC,
        resource_name=f"topic-{number}",
        pattern_type=PatternType.PREFIXED if number % 10 == 0 else PatternType.LITERAL,
        principal=f"User:user-{number % 10_000}" if number % 100 else "User:ann",
        host="*",
        operation=AclOperation.WRITE,
        permission=Permission.ALLOW,
    )


def state_with(acls: int, users: int = 0) -> State:
    state = State()
    changes = [UserChange(name=f"user-{number}", roles=()) for number in range(users)]
    for at in range(0, users, ACLS_IN_A_COMMAND):
        command = AlterUsers(changes=tuple(changes[at : at + ACLS_IN_A_COMMAND]), salt_key=b"k")
        state.apply(state.applied_offset, command)
    for at in range(0, acls, ACLS_IN_A_COMMAND):
        numbers = range(at, min(acls, at + ACLS_IN_A_COMMAND))
        state.apply(state.applied_offset, AddAcls(acls=tuple(map(acl, numbers))))
    return state


def microseconds(work: Callable[[int], object], repeats: int = REPEATS) -> float:
    began = time.thread_time()
    for number in range(repeats):
        work(number)
    return (time.thread_time() - began) / repeats * 1e6


def figures() -> list[Figure]:
    state = state_with(1_000)
    rights = Rights(state.access, state.catalog, Config())
    gate = Gate(rights, Metrics())
    cached = microseconds(lambda _: gate.admit(ANN, Operation.APPEND, "topic:topic-100"))
    few = _uncached(1_000)
    many = _uncached(50_000)
    began = time.thread_time()
    state_with(50_000, users=10_000)
    fold_s = time.thread_time() - began
    tracemalloc.start()
    kept = state_with(50_000, users=10_000)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept.access.version
    return [
        _figure("cached decision, gate included", cached, "us", 1.0),
        _figure("uncached decision, 1,000 ACLs", few, "us", 20.0),
        _figure("uncached decision, 50,000 ACLs", many, "us", 200.0),
        _figure("fold of 10,000 users and 50,000 ACLs", fold_s, "s", 1.0),
        _figure("memory of 10,000 users and 50,000 ACLs", size / 1e6, "MB", 60.0),
    ]


def _uncached(acls: int) -> float:
    """Each question is about another topic, so that no answer is in the cache."""
    state = state_with(acls)
    rights = Rights(state.access, state.catalog, Config())
    return microseconds(
        lambda number: rights.allows(ANN, Operation.APPEND, f"topic:topic-{number}"), 5_000
    )


def _figure(name: str, value: float, unit: str, most: float) -> Figure:
    return Figure(name, value, unit, "CPU of one thread", f"<= {most:g} {unit}", value <= most)
