"""Evidence that says more than it was given: memory of its own past, and honesty, learned from labelled sequences."""
