"""Views: topics that show those records of another topic which a filter takes.

Owns the making and finding of them with what every Kafka broker understands: a view is created,
described and deleted as a topic whose settings say what it shows. Millstream carries them out; any
other broker refuses the settings.
"""

from collections.abc import Iterable

from millstream.client.admin import Admin
from millstream.client.errors import AlreadyExists, NotFound, Refused
from millstream.client.models import Setting, View
from millstream.client.patterns import is_pattern, is_regex
from millstream.view_names import view_name

VIEW_OF, VIEW_WHERE = "view.of", "view.where"


class Views:
    """`client.views`. Threads may share it."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def create(self, name: str, *, of: str, where: str, dry_run: bool = False) -> None:
        """Let `name` show the records of topic `of` that the filter `where` takes."""
        self._admin.create_topic(name, settings={VIEW_OF: of, VIEW_WHERE: where}, dry_run=dry_run)

    def list(self) -> tuple[View, ...]:
        """All views by name."""
        topics = {one.name: one.partition_count for one in self._admin.list_topics()}
        settings = self._admin.settings_of_topics(topics)
        views = (_view(name, settings[name], topics[name]) for name in sorted(settings))
        return tuple(view for view in views if view is not None)

    def describe(self, name: str) -> View:
        found = self._admin.describe_topic(name)
        view = _view(name, found.settings, len(found.partitions))
        if view is None:
            raise NotFound(f"topic {name!r} is no view.", code="UNKNOWN_TOPIC_OR_PART")
        return view

    def delete(self, name: str) -> None:
        """Delete a view. The topic that it shows keeps its records."""
        self.describe(name)
        self._admin.delete_topic(name)

    def ensure(self, topics: str | Iterable[str], where: str) -> dict[str, str]:
        """The names of the views that show these topics through a filter, made if need be."""
        if not where.strip():
            raise Refused("the filter is empty; leave it out to read everything")
        names = [topics] if isinstance(topics, str) else list(topics)
        for name in names:
            if is_pattern(name) or is_regex(name):
                raise Refused(f"filter= takes topics by name, {name!r} is a pattern")
        views = {name: view_name(name, where) for name in names}
        for of, name in views.items():
            try:
                self.create(name, of=of, where=where)
            except AlreadyExists:
                self._check(name, of=of, where=where)
        return views

    def _check(self, name: str, *, of: str, where: str) -> None:
        """Somebody asked for the same before, as a rule."""
        found = self.describe(name)
        if (found.topic, found.where) != (of, where):
            raise Refused(
                f"view {name!r} was altered: it shows {found.topic!r} where {found.where}; "
                "delete it, and it is made again"
            )


def _view(name: str, settings: Iterable[Setting], partition_count: int) -> View | None:
    values = {one.name: one.value for one in settings}
    of = values.get(VIEW_OF)
    if not of:
        return None
    return View(
        name=name, topic=of, where=values.get(VIEW_WHERE) or "", partition_count=partition_count
    )
