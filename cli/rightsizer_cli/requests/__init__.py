"""The engine's requests from options, manifests, files and running jobs; no command line library."""
