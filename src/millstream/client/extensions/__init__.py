"""Requests that only Millstream serves: dead letters, delayed records, health, damage."""
