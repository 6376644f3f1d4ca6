"""Creates new pipelines from the templates in `templates/`, each of which runs as it is.

Every template reads the topic `orders`, whose values are JSON such as
{"id": 1, "item": "flour", "kg": 2.5, "at": "2026-01-01T12:00:00Z"}.
"""

from pathlib import Path

from millstream.spark.pipelines.failures import InvalidPipeline

_TEMPLATES = Path(__file__).parent / "templates"

# The files of each template, in the order in which they are written. In YAML files `NAME` stands
# for the pipeline's name, `DIRECTORY` for its absolute path.
TEMPLATES: dict[str, tuple[str, ...]] = {
    "sql": ("pipeline.yml",),
    "validate": ("pipeline.yml",),
    "aggregate": ("pipeline.yml",),
    "archive": ("pipeline.yml",),
    "sdp": ("spark-pipeline.yml", "transformations/orders.py"),
}


def create(directory: Path, template: str) -> list[Path]:
    """Write a template's files into a new directory; raise `InvalidPipeline` if it exists."""
    if directory.exists():
        raise InvalidPipeline(f"{directory} is there already")
    written = []
    for name in TEMPLATES[template]:
        text = (_TEMPLATES / template / name).read_text(encoding="utf-8")
        if name.endswith(".yml"):
            text = text.replace("NAME", directory.name)
            text = text.replace("DIRECTORY", str(directory.resolve()))
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
