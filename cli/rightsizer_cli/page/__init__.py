"""The what-if page: one request as a form, its plan beside it."""
