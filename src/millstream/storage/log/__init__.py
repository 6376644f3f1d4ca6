"""One partition's log: segments, indexes, recovery, producers and snapshots."""
