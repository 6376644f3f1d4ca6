"""Groups of the classic protocol: members join, a leader assigns."""
