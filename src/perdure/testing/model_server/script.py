"""What the model says when: lines in the order of the turns, rules, and scripts of single conversations.

Which line answers depends on the conversation that a request brings, never on how many requests came before. Faults are
the exception: they hit the first requests that reach their line, so that a retry finds the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from msgspec import Struct

from perdure.errors import UsageError
from perdure.testing.model_server import answers
from perdure.testing.model_server.answers import GARBAGE, Answer, Fault, Reply, Stop, Tool, Usage
from perdure.testing.model_server.conversation import Conversation
from perdure.testing.model_server.gate import Gate, Hold

Condition = Callable[[Conversation], bool]


class Line:
    """One answer of a script, and what stands before it."""

    def __init__(self) -> None:
        self.given: Answer | Reply | None = None
        self.faults: list[Fault] = []
        self.holds: list[Hold] = []
        self._reached = 0
        self._lock = threading.Lock()

    def next_fault(self) -> Fault | None:
        """What happens to the request that has just reached this line."""
        with self._lock:
            self._reached += 1
            left = self._reached
        for fault in list(self.faults):
            if fault.times is None or left <= fault.times:
                return fault
            left -= fault.times
        return None


class Chosen(Struct, frozen=True):
    """What a script does about a request."""

    answer: Answer
    fault: Fault | None = None
    holds: tuple[Hold, ...] = ()


class Script:
    """A sequence of turns. Its verbs add to it, and each gives the script back, so that they can be chained."""

    def __init__(self, condition: Condition | None = None, *, is_rule: bool = False) -> None:
        self._condition = condition
        self._is_rule = is_rule
        self._lines: list[Line] = []
        self._next = Line()

    def says(self, text: str | Sequence[str], *tools: Tool, stop: Stop = "end", usage: Usage | None = None) -> Self:
        """In its next turn the model says this, and calls these tools. A list is streamed in these pieces."""
        return self._add(answers.answer(text, *tools, stop=stop, usage=usage))

    def calls(self, *tools: str | Tool, **arguments: Any) -> Self:
        """In its next turn the model calls a tool: its name and its arguments; or several, each made by `tool()`."""
        named = [each if isinstance(each, Tool) else Tool(each) for each in tools]
        if not named or (arguments and (len(named) > 1 or named[0].arguments)):
            raise UsageError(
                "calls() takes the name of one tool with its arguments, or several tools with their own.",
                safe="nothing was added to the script.",
                hint='write calls("search", q="x"), or calls(tool("search", q="x"), tool("search", q="y"))',
            )
        if arguments:
            named = [Tool(named[0].name, arguments, named[0].id)]
        return self._add(Answer((), tuple(named)))

    def replies(self, function: Reply) -> Self:
        """In its next turn the model says what this function makes of the conversation."""
        return self._add(function)

    def fails(
        self,
        status: int = 500,
        message: str = "This error is in the script.",
        *,
        retry_after: float | None = None,
        after: int | None = None,
        times: int | None = 1,
    ) -> Self:
        """The first requests for the next turn get an error; `after` so many chunks of a stream, if that is given."""
        return self._fault(Fault("error", times, status, message, retry_after, after))

    def limits(self, retry_after: float = 1.0, *, times: int | None = 1) -> Self:
        """The first requests for the next turn come too often: 429, with the seconds to wait."""
        return self.fails(429, "The rate limit of the script is reached.", retry_after=retry_after, times=times)

    def cuts(self, *, after: int, times: int | None = 1) -> Self:
        """The connection of the first requests for the next turn breaks after so many chunks of the answer."""
        return self._fault(Fault("cut", times, after=after))

    def hangs_up(self, *, times: int | None = 1) -> Self:
        """The first requests for the next turn get no answer at all: the connection is closed."""
        return self._fault(Fault("hang_up", times))

    def garbles(self, text: str = GARBAGE, *, times: int | None = 1) -> Self:
        """The first requests for the next turn get this text as their answer, with status 200."""
        return self._fault(Fault("garble", times, 200, text))

    def holds(self, gate: Gate, *, after: int = 0) -> Self:
        """The next answer stops after so many chunks, until the gate is opened; one that is not streamed, at once."""
        self._next.holds.append(Hold(gate, after))
        return self

    def matches(self, conversation: Conversation) -> bool:
        """Whether this script speaks in the conversation."""
        return self._condition is None or self._condition(conversation)

    def line_for(self, conversation: Conversation) -> Line | None:
        """The line of this turn; what stands after the last one comes to an unscripted turn."""
        at = 0 if self._is_rule else conversation.turn
        if at < len(self._lines):
            return self._lines[at]
        is_next = at == len(self._lines) and (self._next.faults or self._next.holds)
        return self._next if is_next else None

    @property
    def length(self) -> int:
        """How many turns it has."""
        return len(self._lines)

    def _add(self, given: Answer | Reply) -> Self:
        if self._is_rule and self._lines:
            raise UsageError(
                "A rule has one answer, which it gives whenever it holds.",
                safe="the answer it has stands.",
                hint="for several turns write model.conversation(...) instead of model.when(...)",
            )
        self._next.given = given
        self._lines.append(self._next)
        self._next = Line()
        return self

    def _fault(self, fault: Fault) -> Self:
        self._next.faults.append(fault)
        return self


class Scripts(Script):
    """The script of every conversation, with the rules and the scripts of single ones, which come first."""

    def __init__(self, default: Reply) -> None:
        super().__init__()
        self._default = default
        self._others: list[Script] = []

    def when(
        self,
        condition: Condition | None = None,
        *,
        containing: str = "",
        model: str = "",
        turn: int | None = None,
    ) -> Script:
        """A rule: its one answer is given whenever all of this holds, before the turns of any script count."""
        rule = Script(_all_of(condition, containing=containing, model=model, turn=turn), is_rule=True)
        self._others.append(rule)
        return rule

    def conversation(self, condition: Condition | None = None, *, containing: str = "", model: str = "") -> Script:
        """A script of its own, turn by turn, for the conversations in which this holds: those of one agent of many."""
        script = Script(_all_of(condition, containing=containing, model=model, turn=None))
        self._others.append(script)
        return script

    def choose(self, conversation: Conversation) -> Chosen | None:
        """What is done about a request; None where the script did not expect it."""
        speaking = next((script for script in self._others if script.matches(conversation)), self)
        line = speaking.line_for(conversation)
        fault = line.next_fault() if line is not None else None
        given = line.given if line is not None else None
        if given is None:
            if speaking.length and fault is None:
                return None
            given = self._default
        made = given(conversation) if callable(given) else given
        spoken = made if isinstance(made, Answer) else answers.answer(made)
        return Chosen(spoken, fault, tuple(line.holds) if line is not None else ())

    def expected(self, conversation: Conversation) -> str:
        """Why a request was not expected, in words."""
        speaking = next((script for script in self._others if script.matches(conversation)), self)
        turns = "1 turn" if speaking.length == 1 else f"{speaking.length} turns"
        return f"The script has {turns}, and this request asks for turn {conversation.turn + 1}."


def _all_of(condition: Condition | None, *, containing: str, model: str, turn: int | None) -> Condition:
    def holds(conversation: Conversation) -> bool:
        return (
            (not containing or conversation.contains(containing))
            and (not model or conversation.model == model)
            and (turn is None or conversation.turn == turn)
            and (condition is None or bool(condition(conversation)))
        )

    return holds
