"""What a project says: names, calls, values, and when a statement runs; `knowledge` says what libraries mean."""
