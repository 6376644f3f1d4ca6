"""The settings of topics that say nothing themselves: the node's, which may change as it runs.

Owns the layers: what the node was started with, what was set for all nodes, what was set for this
one. Each layer overrides the one before it.
"""

import logging

from millstream.control.resources import EVERY_NODE, NODE_SETTINGS, ResourceKind, Resources
from millstream.errors import InvalidSetting
from millstream.model import NodeId
from millstream.settings import TopicSettings, with_overrides

log = logging.getLogger(__name__)


class TopicDefaults:
    """`settings` is what holds now; ask for it each time."""

    def __init__(self, me: NodeId, base: TopicSettings, resources: Resources) -> None:
        self.base = base
        self.settings = base
        self._me = me
        self._resources = resources

    @property
    def layers(self) -> tuple[dict[str, str], dict[str, str]]:
        """What was set at run time: for this node, and for all nodes."""
        find = self._resources.find
        return (
            dict(find(ResourceKind.NODE, str(self._me))),
            dict(find(ResourceKind.NODE, EVERY_NODE)),
        )

    def refresh(self) -> bool:
        """Follow a change of the settings at run time; return whether anything is different."""
        before, self.settings = self.settings, self.base
        mine, everybodys = self.layers
        for name, text in {**everybodys, **mine}.items():
            if name in NODE_SETTINGS:
                continue
            try:
                self.settings = with_overrides(self.settings, {name: text})
            except InvalidSetting as problem:
                # Committed by another version with other rules.
                log.warning("left out a setting of this node problem=%s", problem)
        return self.settings != before
