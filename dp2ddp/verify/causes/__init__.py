"""Why two runs differ: a catalogue of causes, each with its signature and advice (docs/causes.md)."""
