"""The node's configuration with the settings that were changed while it runs.

Owns the layers: the configuration that the node was started with, the settings of all nodes, the
settings of this node. Each layer overrides the one before it.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from millstream.config import Config
from millstream.control.resources import EVERY_NODE, TUNABLES, Changes, ResourceKind, Resources
from millstream.errors import InvalidSetting
from millstream.model import NodeId

log = logging.getLogger(__name__)


class RunningConfig:
    """`current` changes: read it each time, or `watch` it."""

    def __init__(self, me: NodeId, base: Config, resources: Resources) -> None:
        self.current = base
        self._base = base
        self._me = me
        self._resources = resources
        self._highest: dict[str, tuple[int, str]] = {}
        self._watchers: list[Callable[[Config], None]] = []

    def watch(self, follow: Callable[[Config], None]) -> None:
        """Call `follow` with the configuration whenever it has changed, and now."""
        self._watchers.append(follow)
        follow(self.current)

    def bound(self, name: str, highest: int, reason: str) -> None:
        """Take no value above `highest` for the setting `name`: the machine allows no more."""
        self._highest[name] = (highest, reason)
        self.refresh()

    def check(self, changes: Changes) -> None:
        """Raise `InvalidSetting` for a value that does not fit this machine."""
        for name, text in changes.items():
            if text is not None and name in self._highest:
                highest, reason = self._highest[name]
                if int(text) > highest:
                    raise InvalidSetting(f"{name} = {text} is more than {highest}: {reason}")

    def refresh(self) -> None:
        """Follow a change of the settings at run time."""
        before, self.current = self.current, self._layered()
        if self.current != before:
            for follow in self._watchers:
                follow(self.current)

    def _layered(self) -> Config:
        find = self._resources.find
        settings = {
            **find(ResourceKind.NODE, EVERY_NODE),
            **find(ResourceKind.NODE, str(self._me)),
        }
        values: dict[str, dict[str, int]] = {"limits": {}, "timing": {}}
        for name, text in settings.items():
            if name not in TUNABLES:
                continue
            section, field, low, high = TUNABLES[name]
            if name in self._highest:
                high = min(high, self._highest[name][0])
            try:
                value = int(text)
            except ValueError:
                log.warning("left out a setting of this node %s=%r: not a number", name, text)
                continue
            if not low <= value <= high:
                # Committed by another version, or when the process was allowed more.
                log.warning(
                    "a setting of this node is not in %d to %d %s=%d", low, high, name, value
                )
                value = min(max(value, low), high)
            values[section][field] = value
        return replace(
            self._base,
            limits=replace(self._base.limits, **values["limits"]),
            timing=replace(self._base.timing, **values["timing"]),
        )
