"""What makes one cluster of several nodes: calls, proposals, leaders elsewhere, members."""
