"""Named subscriptions in a cluster: one node owns each of them, members may be on any node."""
