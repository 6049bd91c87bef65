"""rightsizer."""
