"""An MCP server on its standard streams, without any SDK, so that it is quick to start: its tools act on the outside."""

import json
import sys

from errand import act

TOOLS = {"look": {"readOnlyHint": True}, "send": None, "pay": {"destructiveHint": True}}


def respond(method: str, given: dict) -> dict:
    if method == "initialize":
        told = {"capabilities": {"tools": {}}, "serverInfo": {"name": "outside", "version": "1"}}
        return {"result": {"protocolVersion": "2025-06-18", **told}}
    if method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}, "annotations": said} for name, said in TOOLS.items()]
        return {"result": {"tools": [{key: value for key, value in tool.items() if value} for tool in tools]}}
    if method == "tools/call":
        (argument,) = given["arguments"].values()
        is_look = given["name"] == "look"  # it may be called again, so nobody counts it
        said = f"look {argument}: done" if is_look else act(given["name"], argument)
        return {"result": {"content": [{"type": "text", "text": said}]}}
    return {"error": {"code": -32601, "message": "Method not found"}}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        answer = {"jsonrpc": "2.0", "id": request["id"], **respond(request["method"], request.get("params") or {})}
        print(json.dumps(answer), flush=True)
