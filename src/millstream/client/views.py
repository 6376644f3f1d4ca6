"""Views: topics that show those records of another topic which a filter takes.

Owns the making and finding of them with what every Kafka broker understands: a view is created,
described and deleted as a topic whose settings say what it shows. Millstream carries them out; any
other broker refuses the settings.
"""

from collections.abc import Iterable

from millstream.client.admin import Admin
from millstream.client.errors import NotFound, NotSupported, Refused
from millstream.client.models import Setting, View
from millstream.client.patterns import is_pattern, is_regex
from millstream.view_names import filtered_name

VIEW_OF, VIEW_WHERE = "view.of", "view.where"
NAME_BYTES_MAX = 512  # librdkafka takes no longer name of a topic.


class Views:
    """`client.views`. Threads may share it."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def create(self, name: str, *, of: str, where: str, dry_run: bool = False) -> None:
        """Let `name` show the records of topic `of` that the filter `where` takes."""
        self._admin.create_topic(name, settings={VIEW_OF: of, VIEW_WHERE: where}, dry_run=dry_run)

    def list(self) -> tuple[View, ...]:
        """All views by name."""
        topics = {topic.name: topic.partition_count for topic in self._admin.list_topics()}
        settings = self._admin.settings_of_topics(topics)
        views = (_view(name, settings[name], topics[name]) for name in sorted(settings))
        return tuple(view for view in views if view is not None)

    def describe(self, name: str) -> View:
        topic = self._admin.describe_topic(name)
        view = _view(name, topic.settings, len(topic.partitions))
        if view is None:
            raise NotFound(f"topic {name!r} is no view.", code="UNKNOWN_TOPIC_OR_PART")
        return view

    def delete(self, name: str) -> None:
        """Delete a view. The topic that it shows keeps its records."""
        self.describe(name)
        self._admin.delete_topic(name)

    def filtered(self, topics: str | Iterable[str], where: str) -> dict[str, str]:
        """The names under which these topics are read through a filter, by topic.

        The broker checks the filter. Nothing is created there: the name says it all.
        """
        if not where.strip():
            raise Refused("the filter is empty; leave it out to read everything")
        names = [topics] if isinstance(topics, str) else list(topics)
        for name in names:
            if is_pattern(name) or is_regex(name):
                raise Refused(f"filter= takes topics by name, {name!r} is a pattern")
        filtered = {name: filtered_name(name, where) for name in names}
        for topic, name in filtered.items():
            self._check(topic, name)
        return filtered

    def _check(self, topic: str, name: str) -> None:
        size = len(name.encode())
        if size > NAME_BYTES_MAX:
            raise Refused(
                f"topic and filter have {size} bytes together, at most {NAME_BYTES_MAX} here; "
                f"make a view: millstream view create NAME --from {topic} --where FILTER"
            )
        settings = self._admin.topic_settings(name, doing=f"read {topic!r} through the filter")
        if not any(setting.name == VIEW_OF and setting.value for setting in settings):
            raise NotSupported("this broker does not filter: leave the filter out")


def _view(name: str, settings: Iterable[Setting], partition_count: int) -> View | None:
    values = {setting.name: setting.value for setting in settings}
    of = values.get(VIEW_OF)
    if not of:
        return None
    return View(
        name=name, topic=of, where=values.get(VIEW_WHERE) or "", partition_count=partition_count
    )
