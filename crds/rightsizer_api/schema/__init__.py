"""The schemas that are generated from the models: the CustomResourceDefinition and the reference."""
