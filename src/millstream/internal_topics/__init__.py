"""The records of internal topics: their keys and values, and the state they fold into. Pure."""
