"""What `millstream pipeline` does and prints."""
