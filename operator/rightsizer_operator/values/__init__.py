"""Values parsed from API objects, and the actions of a reconcile."""
