"""The user's code as text: files and projects; knows nothing of torch."""
