"""Results in words, one file a result."""
