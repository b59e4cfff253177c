"""An MCP server on its standard streams, without any SDK: each tool leaves a line in a log outside.

CRASH_AT may name a moment in here: `received:send` or `performed:send`; the client is killed then, before the tool does
what it does, or after that and before it answers. The lock is held for as long as the server lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

ANNOTATIONS: dict[str, dict[str, bool] | None] = {
    "look_up": {"readOnlyHint": True},
    "send": {"destructiveHint": True},
    "label": {"readOnlyHint": False, "idempotentHint": True},
    "note": None,
}
PAGE = 2


def main() -> None:
    with Path("server-lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        for line in sys.stdin:
            request = json.loads(line)
            if "id" in request:
                answer = {"jsonrpc": "2.0", "id": request["id"], **respond(request)}
                print(json.dumps(answer), flush=True)


def respond(request: dict[str, Any]) -> dict[str, Any]:
    given = request.get("params") or {}
    match request["method"]:
        case "initialize":
            info = {"name": os.environ.get("SERVER_NAME", "post"), "version": "1"}
            told = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            return {"result": told}
        case "tools/list":
            return {"result": page(int(given.get("cursor") or 0))}
        case "tools/call" if given["name"] in ANNOTATIONS:
            return {"result": {"content": [{"type": "text", "text": perform(given["name"], given["arguments"])}]}}
        case "tools/call":
            return {"error": {"code": -32602, "message": f"Unknown tool: {given['name']}"}}
    return {"error": {"code": -32601, "message": "Method not found"}}


def page(first: int) -> dict[str, Any]:
    """The tools come in pages, so that a client must ask for all of them."""
    names = [*ANNOTATIONS][first : first + PAGE]
    tools = [
        {"name": name, "inputSchema": {"type": "object"}}
        | ({"annotations": ANNOTATIONS[name]} if ANNOTATIONS[name] is not None else {})
        for name in names
    ]
    return {"tools": tools} | ({"nextCursor": str(first + PAGE)} if first + PAGE < len(ANNOTATIONS) else {})


def perform(name: str, arguments: dict[str, Any]) -> str:
    moment("received", name)
    outside = os.open("outside", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(outside, f"{name} {arguments['what']}\n".encode())
    os.close(outside)
    moment("performed", name)
    return f"{name} {arguments['what']}: done"


def moment(side: str, name: str) -> None:
    if os.environ.get("CRASH_AT") == f"{side}:{name}":
        os.kill(os.getppid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
