"""Handlers of ACLs, roles and explained decisions."""
