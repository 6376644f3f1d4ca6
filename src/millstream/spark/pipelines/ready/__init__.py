"""The ready-made pipelines, one module each: `Parameters`, `run` and pure functions of frames."""
