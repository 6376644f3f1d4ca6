"""Encryption at rest: batches sealed one by one, and the keyring that holds their keys."""
