"""State as a fold over an internal topic, one shard for each partition that is led here."""
