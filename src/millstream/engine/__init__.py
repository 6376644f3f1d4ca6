"""What a broker can do, in its own words: every front-end asks here, and every call is gated."""
