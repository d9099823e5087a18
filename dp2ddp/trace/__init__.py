"""What a run did: written by runtime, read by verify."""
