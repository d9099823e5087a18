"""What the schema of SARIF 2.1.0 says of the objects that we write.

Written down from the standard (section 3), so that the tests need no network: names, types, and what must be there. The
whole schema, by jsonschema's Draft4Validator, said the same of such a log (records/2026-W48.md).
"""

from __future__ import annotations

from jsonschema import Draft202012Validator

TEXT = {"type": "string"}
MESSAGE = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": TEXT},
    "additionalProperties": False,
}
MULTIFORMAT = {**MESSAGE, "properties": {"text": TEXT, "markdown": TEXT}}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
PLACE = {"type": "integer", "minimum": 1}


def _object(required: list[str], **properties: object) -> dict[str, object]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


LOCATION = _object(
    [],
    physicalLocation=_object(
        ["artifactLocation"],
        artifactLocation=_object([], uri={"type": "string", "pattern": r"^[^ ]+$"}),
        region=_object([], startLine=PLACE, startColumn=PLACE),
    ),
)
LOCATIONS = {"type": "array", "items": LOCATION}
RULE = _object(
    ["id"], id=TEXT, name=TEXT, shortDescription=MULTIFORMAT, fullDescription=MULTIFORMAT, help=MULTIFORMAT
)
RESULT = _object(
    ["message"],
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    level=LEVEL,
    message=MESSAGE,
    locations=LOCATIONS,
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
)
NOTIFICATION = _object(["message"], level=LEVEL, message=MESSAGE, locations=LOCATIONS)
RUN = _object(
    ["tool"],
    tool=_object(
        ["driver"], driver=_object(["name"], name=TEXT, version=TEXT, rules={"type": "array", "items": RULE})
    ),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    invocations={
        "type": "array",
        "items": _object(
            ["executionSuccessful"],
            executionSuccessful={"type": "boolean"},
            toolExecutionNotifications={"type": "array", "items": NOTIFICATION},
        ),
    },
    results={"type": "array", "items": RESULT},
)
LOG = _object(
    ["version", "runs"],
    **{"$schema": TEXT},
    version={"enum": ["2.1.0"]},
    runs={"type": "array", "items": RUN},
)


def check_log(log: object) -> None:
    """Raises jsonschema.ValidationError for what is no SARIF."""
    Draft202012Validator(LOG).validate(log)
