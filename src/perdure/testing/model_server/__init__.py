"""A model server for tests: it speaks as the providers do, says what a script says, and remembers what it was asked."""

from perdure.testing.model_server.answers import Answer, Tool, Usage, answer, broken_tool, tool
from perdure.testing.model_server.conversation import Called, Conversation, Message, Result
from perdure.testing.model_server.gate import Gate
from perdure.testing.model_server.invent import plain, use_tools
from perdure.testing.model_server.ledger import Request
from perdure.testing.model_server.process import ModelProcess
from perdure.testing.model_server.script import Script
from perdure.testing.model_server.server import ModelServer

__all__ = [
    "Answer",
    "Called",
    "Conversation",
    "Gate",
    "Message",
    "ModelProcess",
    "ModelServer",
    "Request",
    "Result",
    "Script",
    "Tool",
    "Usage",
    "answer",
    "broken_tool",
    "plain",
    "tool",
    "use_tools",
]
