"""What a project says: names, calls, values, and when a statement runs; `knowledge` tells what a library's name means."""
