"""What works in which version of Spark: one table, for the code, the documents and the tests.

Pure. A feature that a version lacks is refused with a sentence, or done in another way that the
table names. Importing this module does not import Spark.
"""

import re
from dataclasses import dataclass

from millstream.spark.errors import UnsupportedSpark

Version = tuple[int, int]

SPARK_MIN: Version = (4, 0)
# The first that is not supported: a minor version is tested before it is allowed.
SPARK_END: Version = (4, 4)
SUPPORTED: tuple[Version, ...] = ((4, 0), (4, 1), (4, 2), (4, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """`since` is None where no version has it; `otherwise` says what happens in the others."""

    name: str
    since: Version | None
    otherwise: str = ""

    def works_in(self, version: Version) -> bool:
        return self.since is not None and version >= self.since


ADMISSION_CONTROL = Feature(
    name="`maxOffsetsPerTrigger`, `maxBytesPerTrigger`, `minOffsetsPerTrigger`",
    since=(4, 2),
    otherwise="refused with a sentence: Spark does not say where a query stands when it asks how "
    "far to read",
)
AVAILABLE_NOW = Feature(
    name="`trigger(availableNow=True)` in several batches",
    since=(4, 2),
    otherwise="runs as one batch",
)
LATEST_OFFSET = Feature(
    name="lag in Spark's own progress (`latestOffset`)",
    since=(4, 2),
    otherwise="the consumer group shows it in every version",
)
STREAM_ARROW_WRITER = Feature(
    name="Arrow batches in the streaming sink, by an interface of Spark's",
    since=(4, 1),
    otherwise="the sink takes Arrow batches as a batch writer does",
)
DECLARATIVE = Feature(
    name="`spark-pipelines` (declarative pipelines)",
    since=(4, 1),
    otherwise="not in this Spark",
)
INSERT = Feature(
    name="`INSERT INTO`, and `SELECT ... FROM STREAM table`",
    since=(4, 1),
    otherwise="use `df.write` and `spark.readStream.table`",
)
PUSHED_FILTERS = Feature(
    name="`WHERE` narrows what is read",
    since=None,
    otherwise="Spark 4.1 to 4.3 can push filters, but then all scans of a DataFrame share the "
    "narrowed plan and rows go missing; use `startingOffsets`, `startingTimestamp` and "
    "`brokerFilter`, also as `SELECT ... FROM table WITH (...)`",
)
REAL_TIME_MODE = Feature(
    name="real-time mode, continuous processing",
    since=None,
    otherwise="Spark allows no Python source in them; its Kafka connector reads this broker",
)

FEATURES: tuple[Feature, ...] = (
    Feature(name="batch source and sink, Arrow both ways", since=(4, 0)),
    Feature(name="streaming source and sink, exactly once", since=(4, 0)),
    Feature(name="typed values, schema registries, dead letters, `brokerFilter`", since=(4, 0)),
    Feature(name="`CREATE TABLE ... USING millstream`, `SELECT`, streaming tables", since=(4, 0)),
    Feature(name="ready-made pipelines (`millstream pipeline run`)", since=(4, 0)),
    INSERT,
    STREAM_ARROW_WRITER,
    DECLARATIVE,
    PUSHED_FILTERS,
    ADMISSION_CONTROL,
    AVAILABLE_NOW,
    LATEST_OFFSET,
    REAL_TIME_MODE,
)


def parse(text: str) -> Version:
    """The minor version in a text such as `4.1.4` or `4.2.0.dev1`."""
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        raise UnsupportedSpark(text)
    return int(match[1]), int(match[2])


def check(text: str) -> Version:
    """The minor version; raises `UnsupportedSpark` unless the source runs in it."""
    version = parse(text)
    if not SPARK_MIN <= version < SPARK_END:
        raise UnsupportedSpark(text)
    return version


def spell(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def table() -> list[dict[str, object]]:
    """The table as plain values: a row for each feature, a field for each version."""
    return [
        {
            "feature": feature.name.replace("`", ""),
            "works": {spell(version): feature.works_in(version) for version in SUPPORTED},
            "otherwise": feature.otherwise.replace("`", ""),
        }
        for feature in FEATURES
    ]
