"""The base of all request models, and the way from a JSON object to one."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError, model_validator

from ..errors import RequestError

# Union members carry tags that start with this, so that paths in messages leave them out.
HIDDEN = "~"


class Wire(BaseModel):
    """Unknown fields are ignored: every client sends some that only one vendor knows. Null means absent."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if isinstance(value, dict) and None in value.values():
            return {key: field for key, field in value.items() if field is not None}
        return value


def integral(value: Any) -> Any:
    """5 for 5.0, as JavaScript clients and jq write it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Int = Annotated[int, BeforeValidator(integral)]
Index = Annotated[Int, Field(ge=-(2**31), le=2**31 - 1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Text = Annotated[str, Strict()]

Model = TypeVar("Model", bound=Wire)


def parse(model: type[Model], body: dict[str, Any]) -> Model:
    """``body`` as ``model``. Raises `RequestError` 400 that names the first field at fault."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        param = path_of(first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        where = f"Invalid value for '{param}': " if param else ""
        raise RequestError(f"{where}{reason}", param=param or None, code="invalid_value") from None


def path_of(location: tuple[int | str, ...]) -> str:
    """``messages[0].content`` from pydantic's location tuple."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not step.startswith(HIDDEN):
            path += f".{step}" if path else step
    return path
