"""Groups of KIP-848: members send heartbeats, the broker assigns."""
