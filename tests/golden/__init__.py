"""Golden files: what people should read, and the runners that keep it true."""
