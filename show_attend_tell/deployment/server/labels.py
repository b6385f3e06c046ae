"""Write tags in the JSON that a photo program asks for: its labels or keywords.

A program that wants labels asks Ollama or OpenAI for JSON, with or without a schema.
Without a schema the answer is PhotoPrism's, ::

    {"labels": [{"name": "dog", "confidence": 0.8, "topicality": 0.8}]}

A schema may have arrays of labels, of texts or of such objects, and texts for the
sentence, under the names below. A schema that requires anything else is refused.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

from show_attend_tell.inference.result import Caption
from show_attend_tell.inference.tags import Tag
from show_attend_tell.runtime.errors import quote

_LISTS = frozenset(["labels", "tags", "keywords"])
_TEXTS = frozenset(["caption", "description", "title", "sentence", "alt_text"])
_NAMES = frozenset(["name", "label", "tag", "keyword"])
# PhotoPrism's topicality is how much the photo is about a label.
_NUMBERS = frozenset(["confidence", "score", "probability", "topicality"])
_PHOTOPRISM = ("name", "confidence", "topicality")
_DEFINITIONS = ("#/$defs/", "#/definitions/")

_ToJson = Callable[[Caption], Any]


@dataclass(frozen=True)
class JsonForm:
    """What a request asks for in place of a sentence.

    Attributes:
        values: name -> function that returns its value for a caption with tags.
    """

    values: Mapping[str, _ToJson]

    def fill(self, caption: Caption) -> str:
        """Return the JSON of a caption with tags."""
        return json.dumps({name: of(caption) for name, of in self.values.items()})


def json_form(field: str, schema: object = None) -> JsonForm:
    """Return the form of a request for JSON.

    Args:
        field: of the request, for messages.
        schema: a JSON Schema; None for any JSON object.

    Raises:
        HTTPException: the schema asks for something that is neither labels nor a
            sentence, or is no schema of an object.
    """
    if schema is None:
        return JsonForm({"labels": _list_of(_PHOTOPRISM)})
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        raise _refused(field, quote(schema, 60))
    values: dict[str, _ToJson] = {}
    for name, described in schema["properties"].items():
        found = _value_of(name, _resolved(described, schema), schema)
        if found is not None:
            values[name] = found
    absent = _absent(schema, tuple(values))
    # Other properties that are optional are left out of the answer.
    if absent:
        raise _refused(field, quote(absent[0], 60))
    if not values:
        raise _refused(field, "none of them")
    return JsonForm(values)


def labels_of(caption: Caption) -> list[dict[str, Any]]:
    """Return the tags of a caption as PhotoPrism's labels."""
    return [_label(tag, _PHOTOPRISM) for tag in caption.tags or ()]


def _refused(field: str, received: str) -> HTTPException:
    return HTTPException(
        400,
        f"`{field}` must ask for text, or for an object with lists of "
        f"{', '.join(sorted(_LISTS))} and texts such as caption. Received: {received}; "
        "ask another model for other JSON",
    )


def _value_of(
    name: str, described: Mapping[str, Any], schema: Mapping[str, Any]
) -> _ToJson | None:
    """Return the function for a property of a schema, None for one of another kind."""
    kind = described.get("type")
    if name in _TEXTS and kind == "string":
        return lambda caption: caption.sentence
    if name not in _LISTS or kind != "array":
        return None
    items = _resolved(described.get("items"), schema)
    # A list of texts, by its type or because nothing else is described.
    if items.get("type") in (None, "string") and "properties" not in items:
        return lambda caption: list(caption.tag_names)
    properties = items.get("properties")
    if not isinstance(properties, dict):
        return None
    # Each name and each number that is asked for gets the same value.
    known = tuple(key for key in properties if key in _NAMES | _NUMBERS)
    if _absent(items, known) or not _NAMES & set(known):
        return None
    return _list_of(known)


def _absent(schema: Mapping[str, Any], names: tuple[str, ...]) -> list[object]:
    """Return what a schema of an object requires beside these names."""
    required = schema.get("required")
    if not isinstance(required, list):
        return []
    return [name for name in required if name not in names]


def _list_of(keys: tuple[str, ...]) -> _ToJson:
    return lambda caption: [_label(tag, keys) for tag in caption.tags or ()]


def _label(tag: Tag, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return a tag as an object with these keys."""
    return {key: tag.name if key in _NAMES else tag.confidence for key in keys}


def _resolved(described: object, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part of a schema; a reference to one of its definitions is followed."""
    if not isinstance(described, dict):
        return {}
    reference = described.get("$ref")
    if not isinstance(reference, str):
        return described
    # Pydantic and others put the items of a list into definitions.
    for prefix in _DEFINITIONS:
        definitions = schema.get(prefix.strip("#/"))
        if reference.startswith(prefix) and isinstance(definitions, dict):
            # Followed once: a definition that refers to itself cannot loop.
            found = definitions.get(reference.removeprefix(prefix))
            return found if isinstance(found, dict) else {}
    return {}
