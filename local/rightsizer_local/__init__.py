"""`rightsizer run`: a plan sized to this machine, trained here, and its report."""
