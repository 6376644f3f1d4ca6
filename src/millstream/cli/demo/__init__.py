"""What `millstream demo` prints."""
