"""What a test asks of a model server in another process: its requests and its gates, below an address of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from perdure.errors import PerdureError
from perdure.testing.model_server.gate import PATIENCE_SECONDS

if TYPE_CHECKING:
    from perdure.testing.model_server.server import ModelServer

PREFIX: Final = "/perdure/"


def answer(model: ModelServer, method: str, path: str) -> tuple[int, Any]:
    """The status and the answer to a question below `PREFIX`."""
    address = urlsplit(path)
    given = {name: values[-1] for name, values in parse_qs(address.query).items()}
    seconds = float(given.get("seconds", PATIENCE_SECONDS))
    try:
        match method, unquote(address.path.removeprefix(PREFIX)).split("/"):
            case "GET", ["requests"]:
                return 200, msgspec.to_builtins(model.requests)
            case "GET", ["settled"]:
                return 200, msgspec.to_builtins(model.settled(seconds=seconds))
            case "GET", ["gates", name] if model.has_gate(name):
                model.gate(name).wait(int(given.get("count", 0)), seconds=seconds)
                return 200, {"reached": model.gate(name).reached}
            case "POST", ["gates", name] if model.has_gate(name):
                model.gate(name).open()
                return 200, {"reached": model.gate(name).reached}
    except PerdureError as error:
        return 409, {"message": error.message, "safe": error.safe, "hint": error.hint}
    missing = f"The model server has no {address.path}."
    return 404, {"message": missing, "safe": "nothing was changed.", "hint": "name a gate of its script"}
