"""The Kubernetes operator: one pure decision, one door to the API, a thin shell of kopf around them."""
