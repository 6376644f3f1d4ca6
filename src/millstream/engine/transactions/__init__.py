"""Transactions: their coordinator, and groups of transactions that commit as one."""
