"""The rules of the check: one a file, by code and name; what torch itself refuses is a table of them."""
