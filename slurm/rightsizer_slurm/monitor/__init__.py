"""Watching running jobs: measurements, the resize decision, and how it is carried out."""
