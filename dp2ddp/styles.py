"""The styles of a conversion, by name: read before anything of the codemod is loaded."""

STYLES = EXACT, IDIOMATIC = "exact", "idiomatic"
