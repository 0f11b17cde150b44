"""What a classifier does with its rules: learning, streams, fronts, promises, saving."""
