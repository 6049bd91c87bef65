"""The Kubernetes operator: one pure decision, one API client, and a thin shell of kopf around them."""
