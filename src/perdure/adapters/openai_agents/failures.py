"""Failures of a model's client, recorded so that they come back with what they said."""

from __future__ import annotations

from typing import Any

import openai


class ModelFailed(Exception):
    """A failure of the client as plain data: the name of its class, its message, and what it carried."""


def as_data(error: openai.OpenAIError) -> ModelFailed:
    """What a step records of this failure."""
    said: dict[str, Any] = {name: getattr(error, name, None) for name in ("body", "request_id", "status_code")}
    response = getattr(error, "response", None)
    if response is not None:
        said["headers"] = {name: value for name, value in response.headers.items() if name.lower() != "set-cookie"}
    request = getattr(error, "request", None)
    if request is not None:
        said["method"], said["url"] = request.method, str(request.url)
    return ModelFailed(type(error).__name__, str(error), said)


def as_error(failed: ModelFailed) -> Exception:
    """The failure as the client raises it; one whose class is not known any more comes back as the general one."""
    name, message, said = failed.args
    found = getattr(openai, name, None)
    kind = found if isinstance(found, type) and issubclass(found, openai.OpenAIError) else openai.OpenAIError
    try:
        return _made(kind, message, said)
    except (TypeError, KeyError, ImportError):
        return openai.OpenAIError(message)


def _made(kind: type[openai.OpenAIError], message: str, said: dict[str, Any]) -> Exception:
    if not issubclass(kind, openai.APIError):
        return kind(message)
    http: Any = _http()
    request = http.Request(said["method"], said["url"])
    if issubclass(kind, openai.APIStatusError):
        response = http.Response(said["status_code"], headers=said["headers"], request=request)
        return kind(message, response=response, body=said["body"])
    if issubclass(kind, openai.APITimeoutError):
        return kind(request)
    if issubclass(kind, openai.APIConnectionError):
        return kind(message=message, request=request)
    return kind(message, request, body=said["body"])


def _http() -> Any:
    """The library that this version of the client is built on."""
    try:
        import httpx2
    except ImportError:
        import httpx  # type: ignore[import-not-found,unused-ignore]

        return httpx
    return httpx2
