"""`rightsizer crd`."""

import typer


def crd() -> None:
    """Print the TrainingPlan CustomResourceDefinition, for `kubectl apply --server-side -f -`."""
    from rightsizer_api import crd_yaml

    typer.echo(crd_yaml(), nl=False)
