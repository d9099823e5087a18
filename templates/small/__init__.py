"""The helpers of the new codemod, while it stands beside the old one (issue 27)."""
