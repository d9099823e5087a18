"""Why two runs differ: a catalogue of causes, each with a signature in figures and advice."""
