"""What is known about a script: gathered once, then frozen."""
