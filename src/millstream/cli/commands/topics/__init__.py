"""Commands for topics, views, groups and transactions: what a cluster has, and its settings."""
