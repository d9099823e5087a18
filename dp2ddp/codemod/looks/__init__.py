"""What several rules ask of a program, each in a file: local looks at the model."""
