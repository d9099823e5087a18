"""What a project says: names, calls, values, and when a statement runs. What a library's name means it asks `knowledge`."""
