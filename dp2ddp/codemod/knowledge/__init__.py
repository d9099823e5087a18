"""What functions of libraries do, as data."""
