"""Look up models, GPUs, links and node shapes by name; read Hugging Face configs."""
