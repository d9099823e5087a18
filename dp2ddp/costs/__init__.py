"""What a run costs: measured inside it, written down as a reading, and the figures that readings give."""
