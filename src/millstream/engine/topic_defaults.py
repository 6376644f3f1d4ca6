"""The node's default settings for topics, which may change while it runs.

Owns the layers: the node's configuration, the settings of all nodes, the settings of this node.
Each layer overrides the one before it.
"""

import logging

from millstream.control.resources import EVERY_NODE, NODE_SETTINGS, ResourceKind, Resources
from millstream.errors import InvalidSetting
from millstream.model import NodeId
from millstream.settings import TopicSettings, with_overrides

_log = logging.getLogger(__name__)


class TopicDefaults:
    """`settings` changes: read it each time."""

    def __init__(self, me: NodeId, base: TopicSettings, resources: Resources) -> None:
        self.base = base
        self.settings = base
        self._me = me
        self._resources = resources

    @property
    def layers(self) -> tuple[dict[str, str], dict[str, str]]:
        """The settings made at run time: for this node, and for all nodes."""
        find = self._resources.find
        return (
            dict(find(ResourceKind.NODE, str(self._me))),
            dict(find(ResourceKind.NODE, EVERY_NODE)),
        )

    def refresh(self) -> bool:
        """Follow a change of the settings at run time; return whether anything is different."""
        before, self.settings = self.settings, self.base
        this_node, all_nodes = self.layers
        for name, text in {**all_nodes, **this_node}.items():
            if name in NODE_SETTINGS:
                continue
            try:
                self.settings = with_overrides(self.settings, {name: text})
            except InvalidSetting as problem:
                # Committed by another version with other rules.
                _log.warning("left out a setting of this node problem=%s", problem)
        return self.settings != before
