"""`rightsizer simulate`."""
