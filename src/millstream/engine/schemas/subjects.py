"""Subjects: their topics, and the settings and modes that hold for them.

A setting of a subject counts before that of its context, and that before the one of all subjects;
the node's own is the last.
"""

from collections.abc import Iterator
from typing import Any, Literal

from millstream.engine.gate import CLUSTER, topic_resource
from millstream.internal_topics.registry import (
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    RegistryState,
    bare_subject,
    context_of,
    in_context,
    qualified,
)
from millstream.schemas.levels import Level

SUFFIXES = ("-value", "-key")
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
Mode = Literal["READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"]
POLICIES = ("STRICT", "LENIENT")

# JSON of any shape.
Json = Any


def topic_of(subject: str) -> str:
    """`orders-value` and `:.mill:orders-key` name the topic `orders`; any other name itself."""
    name = bare_subject(subject)
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def resource_of(subject: str | None) -> str:
    """What a session needs a right to: the topic, or the cluster for what is above subjects."""
    if subject is None or not bare_subject(subject):
        return CLUSTER if subject is None or subject.startswith(":.") else topic_resource("")
    return topic_resource(topic_of(subject))


def in_same_context(context: str, subject: str) -> str:
    """The whole name of a subject that a schema of `context` references."""
    return qualified(subject) if subject.startswith(":.") else in_context(context, subject)


def scope_key(subject: str | None) -> str | None:
    """The key of settings: those of the default context are those of all subjects."""
    if subject is None:
        return None
    name = qualified(subject)
    return None if not name and subject.startswith(":.") else name


def scopes(subject: str | None) -> Iterator[str | None]:
    """Where a setting of the subject may stand, what counts first first."""
    if subject is not None:
        yield subject
        context = context_of(subject)
        if context != DEFAULT_CONTEXT and bare_subject(subject):
            yield in_context(context, "")
    yield None
    yield GLOBAL_CONTEXT


def config_of(state: RegistryState, subject: str | None, name: str) -> Json:
    """A setting that holds for a subject; None if no scope has it."""
    for scope in scopes(subject):
        value = state.configs.get(scope, {}).get(name)
        if value is not None:
            return value
    return None


def level_of(state: RegistryState, subject: str | None, default: str) -> Level:
    name = config_of(state, subject, "compatibilityLevel")
    try:
        return Level(str(name).upper()) if name is not None else Level(default)
    except ValueError:  # Of another registry.
        return Level(default)


def mode_of(state: RegistryState, subject: str | None) -> str:
    """READONLY_OVERRIDE of a wider scope counts before all others."""
    modes = [state.modes[scope] for scope in scopes(subject) if scope in state.modes]
    if "READONLY_OVERRIDE" in modes:
        return "READONLY_OVERRIDE"
    return modes[0] if modes else "READWRITE"


def alias_of(state: RegistryState, subject: str) -> str:
    """The subject that is meant: an alias stands for another one, of which none is an alias."""
    alias = state.configs.get(subject, {}).get("alias")
    return in_same_context(context_of(subject), alias) if isinstance(alias, str) else subject
