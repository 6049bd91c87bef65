"""`rightsizer crd`."""

import typer

__all__ = ["crd"]


def crd() -> None:
    """Print the TrainingPlan CustomResourceDefinition, ready for `kubectl apply -f -`."""
    from rightsizer_api import crd_yaml

    typer.echo(crd_yaml(), nl=False)
