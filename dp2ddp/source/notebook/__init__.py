"""A notebook as the script that it is, and a notebook that writes a script and starts it."""
