"""Sockets: ports, connections, and the bytes that enter and leave through them."""
