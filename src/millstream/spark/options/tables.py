"""The options that a table keeps, and where it keeps them.

Pure. Spark stores the options of `CREATE TABLE` and does not hand them to a Python source when the
table is read or written. It does hand over the columns, so the options travel in the comment of one
of them, where `DESCRIBE TABLE` shows them.
"""

import json
from collections.abc import Mapping

from millstream.spark.errors import InvalidOption
from millstream.spark.options.kafka import PREFIX

CARRIER = "timestampType"  # The column that queries need least.
MARK = "options of format millstream: "
# In CREATE TABLE alone, Spark gives each option twice: as it is, and with this before its name.
_CREATED = "option."
_SECRETS = ("password", "secret", "jaas", "keystore.key", "token")
_FOR_WRITING = frozenset(
    (
        "topic",
        "deliveryguarantee",
        "transactionalidprefix",
        "assumedeterministictasks",
    )
)
_FOR_BOTH = "includeheaders"
_REFERENCES = ("${file:", "${directory:")


def table_options(raw: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a table that is being created; None: this is a query, and creates none."""
    options = {
        name.lower().removeprefix(_CREATED): text
        for name, text in raw.items()
        if name.lower().startswith(_CREATED)
    }
    if not options:
        return None
    check_secrets(options)
    return options


def check_secrets(options: Mapping[str, str]) -> None:
    """Raise if a table with these options would show a secret."""
    for name, text in options.items():
        is_kafka_secret = name.lower().startswith(PREFIX) and any(word in name for word in _SECRETS)
        is_secret = is_kafka_secret or name.lower() == "schemaregistryuserinfo"
        if (
            is_secret
            and "endpoint" not in name
            and not any(reference in text for reference in _REFERENCES)
        ):
            raise InvalidOption(
                f"a table can't keep {name}: all who see the table would read it. Keep it in a "
                f"file on each node, and name that: {name} '${{directory:/run/secrets:name}}'; or "
                "give it with each query: SELECT ... FROM table WITH (...)"
            )


def comment(options: Mapping[str, str]) -> str:
    """The comment that carries the options."""
    return MARK + json.dumps(dict(sorted(options.items())))


def comment_in_ddl(options: Mapping[str, str]) -> str:
    text = comment(options).replace("\\", "\\\\").replace("'", "\\'")
    return f"COMMENT '{text}'"


def kept_options(comments: Mapping[str, str | None]) -> dict[str, str]:
    """The options in the comments of columns, by name; empty for rows of no table."""
    text = comments.get(CARRIER) or ""
    if not text.startswith(MARK):
        return {}
    try:
        options = json.loads(text.removeprefix(MARK))
        return {str(name): str(value) for name, value in options.items()}
    except (AttributeError, ValueError):
        raise InvalidOption(
            f"the comment of column {CARRIER} holds the options of the table and is damaged: "
            "create the table anew"
        ) from None


def for_reading(kept: Mapping[str, str]) -> dict[str, str]:
    """The options of a table that concern queries."""
    return {name: text for name, text in kept.items() if name not in _FOR_WRITING}


def for_writing(kept: Mapping[str, str]) -> dict[str, str]:
    """The options of a table that concern INSERT; its topic is the only one that it reads."""
    options = {
        name: text
        for name, text in kept.items()
        if name in _FOR_WRITING or name == _FOR_BOTH or name.startswith(PREFIX)
    }
    topics = [name for name in kept.get("subscribe", "").split(",") if name.strip()]
    if kept and "topic" not in options and len(topics) != 1:
        raise InvalidOption(
            "the table is not of one topic, so rows can't be inserted into it: give it the option "
            "topic"
        )
    return options if "topic" in options or not kept else options | {"topic": topics[0].strip()}
