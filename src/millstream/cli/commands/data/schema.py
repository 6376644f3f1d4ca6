"""`millstream schema`: subjects and versions of a schema registry, ours or any other one."""

import json
import os
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from millstream.cli.registry_rest import RegistryRest, subject_path
from millstream.cli.render import (
    Answer,
    CommandGroup,
    Refused,
    answered,
    confirm,
    fields,
    rows,
    yes_option,
)
from millstream.names import SCHEMAS_TOPIC

URL = "http://127.0.0.1:9094"
TYPES = ("AVRO", "JSON", "PROTOBUF")
LEVELS = (
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL",
    "FULL_TRANSITIVE",
)  # fmt: skip
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_SUFFIXES = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
PASSWORD_VARIABLE = "MILLSTREAM_REGISTRY_PASSWORD"

# JSON of any shape.
Json = Any


@click.group(cls=CommandGroup)
def schema() -> None:
    """Look at schemas, register and check them, move them between registries."""


# Any: click hands options over by name, whatever they are.
def with_registry(command: Callable[..., Answer]) -> Callable[..., Answer]:
    """Hand the registry to a command, which gets the options that name it."""

    @click.option("--url", default=URL, envvar="MILLSTREAM_REGISTRY_URL", show_default=True)
    @click.option("--user", default="", help=f"The password is read from {PASSWORD_VARIABLE}.")
    @wraps(command)
    def run(url: str, user: str, **options: Any) -> Answer:
        password = os.environ.get(PASSWORD_VARIABLE, "")
        return command(RegistryRest(url, user=user, password=password), **options)

    return run


def with_draft(command: Callable[..., None]) -> Callable[..., None]:
    """Read the schema from a file, whose name says its type unless an option does."""

    @click.argument("subject")
    @click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
    @click.option("--type", "schema_type", type=click.Choice(TYPES), help="Else by the file name.")
    @click.option(
        "--reference", "references", multiple=True, help="NAME=SUBJECT:VERSION; several may stand."
    )
    @wraps(command)
    def run(
        file: Path, schema_type: str | None, references: tuple[str, ...], **options: Any
    ) -> None:
        known = schema_type or _SUFFIXES.get(file.suffix.lower(), "AVRO")
        body: dict[str, Json] = {"schema": file.read_text(encoding="utf-8"), "schemaType": known}
        if references:
            body["references"] = [_reference(text) for text in references]
        command(body=body, **options)

    return run


@schema.command("list")
@click.option("--prefix", default="", help="Subjects that begin so.")
@click.option("--deleted", is_flag=True, help="Deleted ones too.")
@answered
@with_registry
def list_subjects(registry: RegistryRest, prefix: str, deleted: bool) -> Answer:
    """List subjects with their latest versions."""
    listed = registry(
        "GET", "/schemas", latestOnly=True, deleted=deleted, subjectPrefix=prefix or None
    )
    subjects = [
        {
            "subject": each["subject"],
            "version": each["version"],
            "id": each["id"],
            "type": each.get("schemaType", "AVRO"),
        }
        for each in listed
    ]
    return rows(subjects, nothing="no schemas yet")


@schema.command()
@click.argument("subject")
@click.option("--version", default="latest", show_default=True)
@answered
@with_registry
def describe(registry: RegistryRest, subject: str, version: str) -> Answer:
    """Show a version of a subject, and its schema."""
    known = registry("GET", subject_path(subject, "versions", version), deleted=True)
    config = registry("GET", f"/config/{quote(subject, safe='')}", defaultToGlobal=True)
    shown = {
        "subject": known["subject"],
        "version": known["version"],
        "id": known["id"],
        "guid": known.get("guid", ""),
        "type": known.get("schemaType", "AVRO"),
        "compatibility": config["compatibilityLevel"],
        "versions": ", ".join(
            map(str, registry("GET", subject_path(subject, "versions"), deleted=True))
        ),
    }
    answer = fields(shown)
    return Answer({**shown, "schema": known["schema"]}, f"{answer.text}\n\n{known['schema']}")


@schema.command()
@with_draft
@click.option("--normalize", is_flag=True)
@answered
@with_registry
def register(registry: RegistryRest, subject: str, body: Json, normalize: bool) -> Answer:
    """Register a schema from a file; print its id."""
    known = registry("POST", subject_path(subject, "versions"), body, normalize=normalize)
    version = known.get("version", "")
    return Answer(known, f"{subject} version {version} has id {known['id']}")


@schema.command()
@with_draft
@answered
@with_registry
def check(registry: RegistryRest, subject: str, body: Json) -> Answer:
    """Tell whether a schema could be registered; exit with 1 if it could not."""
    path = f"/compatibility{subject_path(subject, 'versions')}"
    verdict = registry("POST", path, body, verbose=True)
    if verdict["is_compatible"]:
        return Answer(verdict, f"{subject} would accept it")
    lines = "\n".join(f"  {line}" for line in verdict.get("messages", ()))
    return Answer(verdict, f"{subject} would refuse it:\n{lines}", is_fine=False)


@schema.command()
@with_draft
@answered
@with_registry
def explain(registry: RegistryRest, subject: str, body: Json) -> Answer:
    """Show what each compatibility level says of a schema, and what to write instead."""
    asked = {"subject": subject, "schema": body["schema"], "type": body["schemaType"]}
    if "references" in body:
        asked["references"] = body["references"]
    explained = registry("POST", "/v1/schemas:explain", asked)
    lines = []
    for level in explained["levels"]:
        lines.append(f"{level['level']}: {'passes' if level['is_compatible'] else 'breaks'}")
        lines += [
            f"  version {each['version']}, {each['path']}: {each['rule']} breaks {each['breaks']}"
            f"\n    {each['instead']}"
            for each in level["differences"]
        ]
    return Answer(explained, "\n".join(lines))


@schema.command()
@click.argument("subject")
@click.option("--version", default=None, help="One version; else all.")
@click.option("--permanent", is_flag=True, help="For good, after it was deleted without this.")
@yes_option
@answered
@with_registry
def delete(
    registry: RegistryRest, subject: str, version: str | None, permanent: bool, is_yes: bool
) -> Answer:
    """Delete a subject or a version: softly first, then for good."""
    manner = "for good" if permanent else "softly"
    confirm(f"Delete {subject} {version or '(all versions)'} {manner}?", is_yes=is_yes)
    parts = ("versions", version) if version else ()
    gone = registry("DELETE", subject_path(subject, *parts), permanent=permanent)
    return Answer({"subject": subject, "deleted": gone}, f"deleted {subject} {gone} {manner}")


@schema.command()
@click.argument("subject", required=False)
@click.option("--compatibility", type=click.Choice(LEVELS))
@answered
@with_registry
def config(registry: RegistryRest, subject: str | None, compatibility: str | None) -> Answer:
    """Show or set the compatibility of a subject, or of all."""
    path = f"/config/{quote(subject, safe='')}" if subject else "/config"
    if compatibility:
        registry("PUT", path, {"compatibility": compatibility})
    return fields(registry("GET", path, defaultToGlobal=True))


@schema.command()
@click.argument("mode_name", metavar="[MODE]", required=False, type=click.Choice(MODES))
@click.option("--subject", help="Of one subject; else of all.")
@click.option("--force", is_flag=True, help="IMPORT although there are subjects.")
@answered
@with_registry
def mode(registry: RegistryRest, mode_name: str | None, subject: str | None, force: bool) -> Answer:
    """Show or set the mode of a subject, or of all."""
    path = f"/mode/{quote(subject, safe='')}" if subject else "/mode"
    if mode_name:
        registry("PUT", path, {"mode": mode_name}, force=force)
    return fields(registry("GET", path, defaultToGlobal=True))


@schema.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@answered
@with_registry
def export_schemas(registry: RegistryRest, file: Path) -> Answer:
    """Write all versions to a file, one line of JSON each, with ids and deleted ones."""
    versions = list(registry.versions())
    text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in versions)
    file.write_text(text, encoding="utf-8")
    return Answer({"versions": len(versions)}, f"wrote {len(versions)} versions to {file}")


@schema.command("import")
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--from", "from_url", help="The address of another registry.")
@click.option("--from-topic", help=f"A broker that holds the {SCHEMAS_TOPIC} of another registry.")
@answered
@with_registry
def import_schemas(
    registry: RegistryRest, file: Path | None, from_url: str | None, from_topic: str | None
) -> Answer:
    """Take over schemas with their ids and versions: from a file, a registry or its topic."""
    sources = [each for each in (file, from_url, from_topic) if each]
    if len(sources) != 1:
        raise click.UsageError("name one source: a file, --from or --from-topic")
    if file is not None:
        lines = file.read_text(encoding="utf-8").splitlines()
        versions: Iterator[Json] = (json.loads(line) for line in lines if line.strip())
    elif from_url is not None:
        versions = RegistryRest(from_url).versions()
    else:
        assert from_topic is not None
        versions = _from_topic(from_topic)
    before = registry("GET", "/mode")["mode"]
    registry("PUT", "/mode", {"mode": "IMPORT"}, force=True)
    count, deleted = 0, []
    try:
        for each in versions:
            registry("POST", subject_path(each["subject"], "versions"), each)
            count += 1
            if each.get("deleted"):
                deleted.append((each["subject"], each["version"]))
        for subject, version in deleted:
            registry("DELETE", subject_path(subject, "versions", version))
    finally:
        registry("PUT", "/mode", {"mode": before}, force=True)
    return Answer({"versions": count}, f"imported {count} versions")


def _reference(text: str) -> Json:
    name, separator, place = text.partition("=")
    subject, colon, version = place.rpartition(":")
    if not separator or not colon or not version.lstrip("-").isdigit():
        raise Refused(f"{text!r} is not NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}


def _from_topic(bootstrap: str) -> Iterator[Json]:
    """The versions that the topic of a registry folds into."""
    from millstream.client import connect
    from millstream.internal_topics.registry import RegistryState
    from millstream.internal_topics.schemas import decode_key, decode_value
    from millstream.schemas.definition import SchemaType

    state = RegistryState()
    with (
        connect(bootstrap) as client,
        client.consumer([SCHEMAS_TOPIC], start="earliest", idle_s=3.0) as consumer,
    ):
        for record in consumer:
            key = decode_key(record.key)
            if key is not None:
                state.apply(key, decode_value(key, record.value))
    values = [
        value
        for subject in state.subjects(with_deleted=True)
        for value in state.versions(subject, with_deleted=True)
    ]
    for value in sorted(values, key=lambda each: (each.id, each.subject, each.version)):
        text = value.schema
        members = {"subject": value.subject, "version": value.version, "id": value.id}
        if text.type is not SchemaType.AVRO:
            members["schemaType"] = text.type.value
        yield {
            **members,
            "schema": text.text,
            "references": [each._asdict() for each in text.references],
            "metadata": text.metadata,
            "ruleSet": text.rule_set,
            "deleted": value.is_deleted,
        }
