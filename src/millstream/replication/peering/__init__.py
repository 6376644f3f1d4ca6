"""Peer links of a node: liveness, quiescence and confirmed reads of all its groups."""
