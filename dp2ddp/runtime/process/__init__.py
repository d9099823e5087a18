"""The processes of a run: the parent that starts and watches them, the child before and behind the script."""
