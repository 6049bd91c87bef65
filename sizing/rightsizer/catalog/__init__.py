"""Names to nouns: models, GPUs, links and node shapes from the packaged data, and Hugging Face configs."""

__all__: list[str] = []
