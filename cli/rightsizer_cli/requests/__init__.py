"""From words (options, manifests, files) to the engine's Request; no command line library."""
