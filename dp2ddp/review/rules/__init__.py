"""The rules of the check: a file for each subject that several ask about, else one for a rule, named after it."""
