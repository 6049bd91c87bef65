"""Pretraining recipes of published models: sequence, batch and precision, each with its source.

A fact of the model, like its dimensions. It fills in what a pretraining plan leaves out.
"""

import csv
from collections.abc import Mapping
from functools import cache

from rightsizer_engine import packaged
from rightsizer_engine.domain.workload import Precision
from rightsizer_engine.values import immutable


@immutable
class Recipe:
    """The main phase of a model's pretraining. `batch_tokens` 0 and `precision` None: not published."""

    model: str
    sequence_tokens: int
    batch_tokens: int
    precision: Precision | None
    source: str


def recipe(model: str) -> Recipe | None:
    """The recipe of the catalog model of that name; None where none is published."""
    return _recipes().get(model)


def recipes() -> tuple[Recipe, ...]:
    """Every recipe."""
    return tuple(_recipes().values())


@cache
def _recipes() -> Mapping[str, Recipe]:
    rows = csv.DictReader(packaged.text("recipes.csv").splitlines())
    return {
        row["model"]: Recipe(
            model=row["model"],
            sequence_tokens=int(row["sequence_tokens"]),
            batch_tokens=int(row["batch_tokens"] or 0),
            precision=Precision(row["precision"]) if row["precision"] else None,
            source=row["source"],
        )
        for row in rows
    }
