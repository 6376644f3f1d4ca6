"""What nodes say to each other, as bytes: frames, greetings, messages, calls. Pure."""
