"""Did both train the same?"""
