"""The node's journal: votes, epoch boundaries and log starts of all partitions."""
