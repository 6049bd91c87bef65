"""Access to the Kubernetes API: the client, the watch cache, Leases and Events."""
