"""An MCP server on standard input and output, whose tools do what those of the scripts do."""

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from errand import act

server = MCPServer("outside")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def look(what: str) -> str:
    """Look at something."""
    return f"look {what}: done"


@server.tool()
def send(to: str) -> str:
    """Send a letter."""
    return act("send", to)


@server.tool()
def pay(cents: int) -> str:
    """Pay somebody."""
    return act("pay", cents)


server.run("stdio")
