"""Flux's lines, header blocks, payloads and replies as bytes. Pure."""
