"""Records for pages and streams: places, searches, and bytes as JSON shows them."""
