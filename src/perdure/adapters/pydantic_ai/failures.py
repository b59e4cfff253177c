"""Failures of a model, recorded so that they come back with all they said."""

from __future__ import annotations

from typing import Any, Final

from pydantic_ai import exceptions
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError

_SAID: Final = ("body", "provider_error_code", "provider_error_type", "retry_after", "in_stream")
_SAID_OVER_HTTP: Final = ("headers", "suggested_model_id", "hint")


class ModelFailed(Exception):
    """A `ModelAPIError` as plain data: the name of its class, its message, and what it carried."""


def as_data(error: ModelAPIError) -> ModelFailed:
    """What a step records of this failure."""
    names = (*_SAID, *_SAID_OVER_HTTP) if isinstance(error, ModelHTTPError) else _SAID
    said = {name: getattr(error, name, None) for name in names}
    said["model_name"] = error.model_name
    if isinstance(error, ModelHTTPError):
        said["status_code"] = error.status_code
    return ModelFailed(type(error).__name__, str(error), said)


def as_error(failed: ModelFailed) -> Exception:
    """The failure as Pydantic AI raises it; a class that is not known any more comes back as the general one."""
    name, message, said = failed.args
    found = getattr(exceptions, name, None)
    kind = found if isinstance(found, type) and issubclass(found, ModelAPIError) else None
    try:
        return _made(kind, message, dict(said))
    except (TypeError, KeyError):
        return ModelAPIError(said["model_name"], message)


def _made(kind: type[ModelAPIError] | None, message: str, said: dict[str, Any]) -> ModelAPIError:
    if "status_code" in said:
        http = kind if kind is not None and issubclass(kind, ModelHTTPError) else ModelHTTPError
        status, model, body = said.pop("status_code"), said.pop("model_name"), said.pop("body")
        return http(status, model, body, **said)
    return (kind or ModelAPIError)(said.pop("model_name"), message, **said)
