"""SASL mechanisms from the broker's side, as pure steps: bytes in, bytes or an outcome out."""
