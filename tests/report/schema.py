"""The JSON Schemas of `verify --json` and `bench --json`, as strict as a test wants them: no key that is not named."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from dp2ddp.report.comparison import Report
from dp2ddp.report.json_form import schema

SCHEMA: dict[str, Any] = schema(Report)


def validate(document: str, by: Any = SCHEMA) -> None:
    """Raises what is wrong with it."""
    jsonschema.Draft202012Validator(_strict(by)).validate(json.loads(document))


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return {**closed, **{key: _strict(value) for key, value in schema.items()}}


def keys(schema: Any = SCHEMA) -> set[str]:
    """Every key that a document may have."""
    if isinstance(schema, list):
        return set().union(*map(keys, schema))
    if not isinstance(schema, dict):
        return set()
    own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    return own.union(*map(keys, schema.values()))
