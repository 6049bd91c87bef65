"""The nouns: what is trained, on what, with which framework and layout; and those nouns as columns."""
