"""Consumer groups: members, generations, assignments and committed offsets."""
