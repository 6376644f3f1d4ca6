"""The protocols: each package speaks one wire protocol and knows none of the others."""
