"""What a project says: names, calls, values, and when a statement runs. It knows nothing of torch."""
