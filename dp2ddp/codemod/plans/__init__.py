"""What rules have found in files, sorted, checked and answered."""
