"""Render the templates of pages with Jinja2; every value is escaped."""

from collections.abc import Iterator
from importlib.resources import files

import jinja2

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(str(files(__package__) / "templates")),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.policies["json.dumps_kwargs"] = {"allow_nan": False}


def render(name: str, **values: object) -> str:
    """Return a template as text."""
    return _ENVIRONMENT.get_template(name).render(values)


def stream(name: str, **values: object) -> Iterator[str]:
    """Yield a template piece by piece; an iterator among the values is read lazily."""
    yield from _ENVIRONMENT.get_template(name).generate(values)
