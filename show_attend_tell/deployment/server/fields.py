"""Refuse fields that a service does not have: a misspelt option must not be ignored."""

import difflib
from collections import Counter
from collections.abc import Iterable

from fastapi import Request
from starlette.exceptions import HTTPException

from show_attend_tell.runtime.errors import quote

_FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")


async def require_known_fields(request: Request) -> None:
    """Compare the fields of a request with those that /openapi.json describes.

    Services that it does not describe are left alone: the page, and the protocols of
    photo programs, which send fields of other servers.

    Raises:
        HTTPException: a field is unknown, is repeated, or stands in the address in
            place of the form or the reverse.
    """
    schema = request.app.openapi()
    path = schema["paths"].get(request.scope["route"].path_format, {})
    service = path.get(request.method.lower())
    if service is None:
        return
    in_address = [
        one["name"] for one in service.get("parameters", []) if one["in"] == "query"
    ]
    in_form = _form_fields(service, schema)
    sent = [name for name, _ in request.query_params.multi_items()]
    _require_known(sent, in_address, in_form, ("address", "form"))
    if in_form:
        form = await request.form()
        sent = [name for name, _ in form.multi_items()]
        _require_known(sent, in_form, in_address, ("form", "address"))


def _form_fields(service: dict, schema: dict) -> list[str]:
    """Return the fields of a service's form, none without a form."""
    content = service.get("requestBody", {}).get("content", {})
    for kind in _FORMS:
        if kind in content:
            name = content[kind]["schema"]["$ref"].rpartition("/")[2]
            return list(schema["components"]["schemas"][name]["properties"])
    return []


def _require_known(
    sent: Iterable[str],
    known: list[str],
    elsewhere: list[str],
    places: tuple[str, str],
) -> None:
    """Raise an HTTPException for the first field that is wrong.

    `places` are those of `known` and of `elsewhere`.
    """
    for name, count in Counter(sent).items():
        if name in elsewhere:
            raise HTTPException(
                422, f"`{name}` belongs in the {places[1]}, not in the {places[0]}"
            )
        if name not in known:
            nearest = difflib.get_close_matches(name, known + elsewhere, 1)
            remedy = f"did you mean `{nearest[0]}`?" if nearest else "remove it"
            raise HTTPException(
                422, f"{quote(name)} is no field of this service; {remedy}"
            )
        if count > 1:
            raise HTTPException(422, f"`{name}` is there {count} times; send it once")
