"""What a node tells of itself: metrics in our names and in those of others, and its health."""
