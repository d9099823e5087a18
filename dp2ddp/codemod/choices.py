"""What a conversion can be asked for, by name: read by the command line before anything of the codemod is loaded."""

STYLES = EXACT, IDIOMATIC = "exact", "idiomatic"
