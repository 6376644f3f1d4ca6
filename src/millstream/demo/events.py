"""Events of the demonstration, in the order in which they occur."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUp:
    address: str
    seconds: float
    directory: str
    is_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrote:
    count: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRead:
    group: str
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class NoSpark:
    """Spark is not used; `why` says what would help."""

    why: str


@dataclass(frozen=True, slots=True)
class PipelineBegins:
    command: str


@dataclass(frozen=True, slots=True)
class PipelineSays:
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRan:
    seconds: float
    flows: Mapping[str, Any]  # What `millstream pipeline run --output json` says of each.


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """The sums of one item, over all windows."""

    item: str
    orders: int
    kg: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The output of the pipeline, as any client reads it."""

    reasons: Mapping[str, int]  # Why orders were put aside, and how many.
    window_count: int
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Killed: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAgain:
    records: Mapping[str, int]  # By topic.
    group: str
    group_lag: int


@dataclass(frozen=True, slots=True)
class Secured:
    """An order went through a secure broker, and a wrong password was refused."""

    seconds: float


@dataclass(frozen=True, slots=True)
class TourDone:
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GoesOn:
    """From here on orders come until the user stops it."""

    address: str
    console: str
    orders_per_second: int
    has_spark: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    topic: str
    offsets: int  # In use: records, and the markers of transactions.
    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    group: str
    topic: str
    lag: int | None  # None: it has not begun.


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    seconds: float
    topics: tuple[TopicFigures, ...]
    groups: tuple[GroupFigures, ...]


@dataclass(frozen=True, slots=True)
class Stopping: ...


@dataclass(frozen=True, slots=True)
class Ended:
    """All parts have stopped. `kept_in` is where the data stays, if it does."""

    kept_in: str | None


Event = (
    BrokerUp
    | Wrote
    | GroupRead
    | NoSpark
    | PipelineBegins
    | PipelineSays
    | PipelineRan
    | Results
    | Killed
    | FoundAgain
    | Secured
    | TourDone
    | GoesOn
    | Figures
    | Stopping
    | Ended
)
