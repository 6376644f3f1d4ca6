"""Requests of Millstream's own, with API keys from 10,000 on."""
