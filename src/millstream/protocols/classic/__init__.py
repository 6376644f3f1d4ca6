"""The classic protocol: frames with text properties, and subscriptions that are pushed to."""
