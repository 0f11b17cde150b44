"""What reads evidence from observations, behind one protocol."""
