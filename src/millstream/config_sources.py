"""A node's settings, read once from file, environment and flags.

Owns the sentence that says what is wrong with a setting. No other module reads the environment.
Later sources win: defaults, file, `MILLSTREAM_*` variables, flags.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect

from millstream.config import Config
from millstream.errors import InvalidSetting, StartupError
from millstream.model import NodeId
from millstream.security.secrets import Secret
from millstream.settings import NAME

ENVIRONMENT_PREFIX = "MILLSTREAM_"
# For clients of ours, not for the node: where they find a broker.
ENVIRONMENT_NOT_CONFIG = {
    "MILLSTREAM_BOOTSTRAP",
    "MILLSTREAM_CONFIG",
    "MILLSTREAM_CONTEXT",
    "MILLSTREAM_REGISTRY_URL",
}

# Earlier names of keys, which files and variables of users may still have.
RENAMED = {
    "doors": "listeners",
    "deferred_partitions": "delayed_partitions",
    "limits.deferred_ms_max": "limits.delay_ms_max",
    "limits.deferred_records_max": "limits.delayed_records_max",
}

_log = logging.getLogger(__name__)


class Source(NamedTuple):
    """Settings from one place, and how an operator calls the place of each."""

    name: str
    values: dict[str, Any]  # As the file or the environment spelled them: not yet converted.
    place: Callable[[str], str]


def load(
    *,
    path: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Config:
    """Read all sources; raise `StartupError` with one sentence that names the key and its source.

    A double underscore in a variable goes one level down: `MILLSTREAM_LIMITS__READ_BYTES_MAX`.
    """
    return load_with_origins(path=path, environment=environment, flags=flags)[0]


def load_with_origins(
    *,
    path: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> tuple[Config, dict[str, str]]:
    """The same, and for each dotted key that is not at its default, the place that set it."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for source in _sources(path, os.environ if environment is None else environment, flags or {}):
        source = _with_new_names(source)
        _check(source)
        _merge(values, source.values)
        origins |= {key: source.place(key) for key in _leaves(source.values)}
    config = _convert(values)
    if NodeId(config.node_id) not in config.voters:
        raise StartupError(f"node_id = {config.node_id} is not among nodes = {list(config.nodes)}")
    return config, origins


def describe_type(kind: msgspec.inspect.Type) -> str:
    """What a setting takes, in words: `a whole number`, `one of disk, memory`."""
    match kind:
        case msgspec.inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}"
        case msgspec.inspect.EnumType(cls=cls):
            return f"one of {', '.join(str(member.value) for member in cls)}"
        case msgspec.inspect.VarTupleType(item_type=msgspec.inspect.LiteralType(values=values)):
            return f"a list of {', '.join(map(str, values))}"
        case msgspec.inspect.VarTupleType(item_type=msgspec.inspect.StrType()):
            return "a list of texts"
        case msgspec.inspect.VarTupleType():
            return "a list of whole numbers"
        case msgspec.inspect.CustomType(cls=cls) if issubclass(cls, Secret):
            return cls.forms()
    return _KINDS.get(type(kind), "a table")


_KINDS: dict[type, str] = {
    msgspec.inspect.IntType: "a whole number",
    msgspec.inspect.FloatType: "a number",
    msgspec.inspect.BoolType: "true or false",
    msgspec.inspect.StrType: "text",
}


def keys(kind: type = Config, prefix: str = "") -> dict[str, msgspec.inspect.Type]:
    """Every dotted key with the type of its value, in the order of the code."""
    kinds: dict[str, msgspec.inspect.Type] = {}
    for name, inner in _fields(kind).items():
        table = _table(inner)
        if table is None:
            kinds[prefix + name] = inner
        else:
            part = f"{name}.{NAME}" if isinstance(inner, msgspec.inspect.DictType) else name
            kinds |= keys(table, f"{prefix}{part}.")
    return kinds


def _table(kind: msgspec.inspect.Type) -> type | None:
    """The dataclass of a table, of an optional one, or of each of many by name."""
    match kind:
        case msgspec.inspect.DataclassType(cls=cls):
            return cls
        case msgspec.inspect.DictType(value_type=value):
            return _table(value)
        case msgspec.inspect.UnionType(types=types):
            return next(filter(None, map(_table, types)), None)
    return None


def _convert(values: Mapping[str, Any]) -> Config:
    return msgspec.convert(values, type=Config, strict=False, dec_hook=_parse_secret)


def _parse_secret(kind: type, value: object) -> Secret:
    assert issubclass(kind, Secret)
    return kind.parse(value)


def variable(key: str) -> str:
    """The environment variable of a dotted key."""
    return ENVIRONMENT_PREFIX + key.replace(".", "__").upper()


def _sources(
    path: str | None, environment: Mapping[str, str], flags: Mapping[str, object]
) -> Iterator[Source]:
    """From the weakest to the strongest."""
    if path := path or environment.get("MILLSTREAM_CONFIG"):
        yield Source(path, _read_file(path), lambda _: f"file {path}")
    set_variables = _read_environment(environment)
    yield Source("the environment", set_variables, lambda key: f"environment {variable(key)}")
    set_flags = {key: value for key, value in flags.items() if value is not None}
    yield Source("the command line", set_flags, lambda key: f"flag --{key.replace('_', '-')}")


def _with_new_names(source: Source) -> Source:
    """Accept keys under their earlier names, with a warning that names the new one."""
    values = dict(source.values)
    for old, new in RENAMED.items():
        table_name, _, old_name = old.rpartition(".")
        new_name = new.rpartition(".")[2]
        table = values.get(table_name) if table_name else values
        if not isinstance(table, Mapping) or old_name not in table:
            continue
        if new_name in table:
            raise StartupError(
                f"configuration from {source.name}: {old!r} is the earlier name of {new!r}, "
                f"and both are set; remove {old!r} ({source.place(old)})"
            )
        renamed = {new_name if name == old_name else name: table[name] for name in table}
        values = values | {table_name: renamed} if table_name else renamed
        _log.warning("%s: the setting %r is now %r; rename it", source.place(old), old, new)
    return source._replace(values=values)


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def _check(source: Source) -> None:
    """Each source is checked alone, so that the sentence can name it."""
    try:
        _refuse_unknown(source, source.values, Config, "")
        _convert(source.values)
    except msgspec.ValidationError as problem:
        sentence = _explain(str(problem), source)
    except (InvalidSetting, ValueError) as problem:
        sentence = str(problem)
    else:
        return
    raise StartupError(f"configuration from {source.name}: {sentence}") from None


def _explain(problem: str, source: Source) -> str:
    """Say of a value that has the wrong type which one it is and what would be right."""
    path = _AT.search(problem)
    key = re.sub(r"\[\d.*", "", path[1].replace("[...]", f".{NAME}")) if path else ""
    kind = keys().get(key)
    if kind is None:
        return problem.split(" - at ")[0]
    if isinstance(kind, msgspec.inspect.CustomType):
        # Its value may be the secret itself.
        return f"{key} must be {describe_type(kind)} ({source.place(key)})"
    if NAME in key:  # msgspec does not say which of the tables it is.
        return f"{key} is not {describe_type(kind)}: {problem.split(' - at ')[0]} ({source.name})"
    value: Any = source.values
    for part in key.split("."):
        value = value[part]
    return f"{key} = {value!r} is not {describe_type(kind)} ({source.place(key)})"


# Comma-separated in the environment.
_LISTS = {
    *("doors", "listeners", "nodes", "mechanisms", "protocols", "super_users"),
    *("events", "exclude_principals", "required_topic_settings", "hosts", "cors_origins"),
    "addresses",
}

# How msgspec ends its sentences: with the path of the value in what it was given.
_AT = re.compile(r" - at `\$\.([^`]+)`")


def _refuse_unknown(source: Source, values: Mapping[str, Any], kind: type, where: str) -> None:
    known = _fields(kind)
    for key, value in values.items():
        if key not in known:
            from difflib import get_close_matches

            near = get_close_matches(key, known, n=1)
            end = f"; did you mean {where}{near[0]}?" if near else "."
            raise ValueError(
                f"there is no key {where + key!r} ({source.place(where + key)}){end} "
                f"There are {', '.join(known)}"
            )
        inner = _table(known[key])
        if not isinstance(value, Mapping) or inner is None:
            continue
        if isinstance(known[key], msgspec.inspect.DictType):
            for name, table in value.items():
                if isinstance(table, Mapping):
                    _refuse_unknown(source, table, inner, f"{where}{key}.{name}.")
        else:
            _refuse_unknown(source, value, inner, f"{where}{key}.")


def _fields(kind: type) -> dict[str, msgspec.inspect.Type]:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.DataclassType)
    return {field.name: field.type for field in info.fields}


def _read_file(path: str) -> dict[str, Any]:
    import tomllib  # Most nodes start without a file.

    try:
        text = Path(path).read_text(encoding="utf-8")
        parsed = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as problem:
        raise StartupError(f"cannot read the configuration file: {problem}") from None
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as problem:
        raise StartupError(f"{path} is not valid: {problem}") from None
    if not isinstance(parsed, dict):
        raise StartupError(f"{path} must hold a table of settings")
    return parsed


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in environment.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name in ENVIRONMENT_NOT_CONFIG:
            continue
        *parents, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        table = values
        for parent in parents:
            table = table.setdefault(parent, {})
        table[key] = text.split(",") if key in _LISTS else text
    return values


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
