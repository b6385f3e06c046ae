"""Refuse fields that a service does not have: a misspelt option must not be ignored."""

import difflib
from collections import Counter
from collections.abc import Iterable

from fastapi import Request
from starlette.exceptions import HTTPException

from show_attend_tell.runtime.errors import quote

_FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")


async def require_known_fields(request: Request) -> None:
    """Compare the fields of a request with the fields in /openapi.json.

    Services that it does not describe are left alone: the page, and the protocols of
    photo programs, which send fields of other servers.

    Raises:
        HTTPException: a field is unknown, is repeated, or is in the address instead of
            the form or the other way round.
    """
    # FastAPI keeps the document after the first call.
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
    _require_known(sent, "address", in_address, "form", in_form)
    if in_form:
        # Starlette parses a form once and keeps it.
        form = await request.form()
        sent = [name for name, _ in form.multi_items()]
        _require_known(sent, "form", in_form, "address", in_address)


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
    place: str,
    known: list[str],
    other_place: str,
    known_there: list[str],
) -> None:
    """Raise an HTTPException for the first field that is wrong in its place."""
    for name, count in Counter(sent).items():
        if name in known_there:
            raise HTTPException(
                422, f"`{name}` belongs in the {other_place}, not in the {place}"
            )
        if name not in known:
            # The other place counts too: a misspelt name may belong there.
            close = difflib.get_close_matches(name, known + known_there, 1)
            remedy = f"did you mean `{close[0]}`?" if close else "remove it"
            raise HTTPException(
                422, f"{quote(name)} is no field of this service; {remedy}"
            )
        if count > 1:
            raise HTTPException(422, f"`{name}` is there {count} times; send it once")
