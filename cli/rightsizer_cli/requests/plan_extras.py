"""The words of `plan --serve` and `plan --own` as figures."""

from collections.abc import Callable, Sequence

from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.errors import InputError
from rightsizer_engine.serving import Demand

_NAMES = {
    "requests": "requests_per_s",
    "input": "input_tokens",
    "output": "output_tokens",
    "bits": "weight_bits",
    "cache": "cache_bits",
}
_REMEDY = "write requests=RATE, and if you like input=, output= (tokens), bits= (16, 8, 4) and cache= (16, 8)"


def demand(text: str) -> Demand:
    """The demand that `requests=20,input=1000` states. Raises OptionError."""
    given: dict[str, float] = {}
    for word in text.split(","):
        name, _, value = (part.strip() for part in word.partition("="))
        read: Callable[[str], float] = float if name == "requests" else int
        try:
            given[_NAMES[name]] = read(value)
        except (KeyError, ValueError):
            raise OptionError("--serve", value=word, remedy=_REMEDY) from None
    if "requests_per_s" not in given:
        raise OptionError("--serve", value=text, remedy=_REMEDY)
    try:
        return Demand(**given)  # type: ignore[arg-type]
    except InputError as error:
        raise OptionError("--serve", value=error.value, remedy=f"{error.field}: {error.remedy}") from None


def figures(given: Sequence[str]) -> dict[str, float]:
    """`NAME=VALUE` words as figures."""
    figures = {}
    for word in given:
        name, _, value = word.partition("=")
        try:
            figures[name.strip()] = float(value)
        except ValueError:
            raise InputError("--own", value=word, remedy="write NAME=NUMBER, such as years=5") from None
    return figures
