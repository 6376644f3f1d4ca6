"""The audit trail: what is noted, how it is summed, written, queried."""
