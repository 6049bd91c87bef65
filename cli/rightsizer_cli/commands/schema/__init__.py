"""`rightsizer schema`."""
