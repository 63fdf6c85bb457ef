"""JSON schemas for request bodies that routes read themselves."""

from typing import Any

from pydantic import BaseModel


def inlined_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The model's schema with its definitions put in place, as an OpenAPI operation needs it."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def inlined(part: Any) -> Any:
        if isinstance(part, list):
            return [inlined(item) for item in part]
        if not isinstance(part, dict):
            return part
        if (reference := part.get("$ref")) is not None:
            rest = {key: inlined(value) for key, value in part.items() if key != "$ref"}
            return {**inlined(definitions[reference.rsplit("/", 1)[-1]]), **rest}
        return {key: inlined(value) for key, value in part.items()}

    result: dict[str, Any] = inlined(schema)
    return result
