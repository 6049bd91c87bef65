"""The engine's Request from options, manifests and files; no command line library."""
