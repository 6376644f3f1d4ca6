"""Commands of users and certificates."""
