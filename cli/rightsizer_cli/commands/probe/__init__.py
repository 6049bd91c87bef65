"""`rightsizer probe`."""
