"""The Claude Agent SDK: `PerdureSessionStore` keeps its sessions in perdure's store, and continues them after a crash.

The model and its tools run in a program that comes with the SDK; what perdure can do is to keep what that program says.
Every entry of a transcript is kept as soon as it is told, and every tool call before it begins and when it is over. A
session that is continued, in any process on any machine, goes on behind what was kept; tool calls without a result are
closed first, with what is true of them: what they gave, that they were not started, or that they are in doubt.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, cast

import claude_agent_sdk
import msgspec
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, fold_session_summary

from perdure import clock
from perdure.adapters import transcripts
from perdure.adapters.transcripts import Call, Session
from perdure.errors import StoreUnavailable, UsageError
from perdure.settings import current_settings
from perdure.store import open_cabinet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from typing import TypeVar

    from claude_agent_sdk import Message, SessionKey, SessionStoreEntry
    from claude_agent_sdk.types import SessionListSubkeysKey, SessionStoreListEntry, SessionSummaryEntry

    from perdure.store.cabinet import Cabinet, Rows

    T = TypeVar("T")

TOLD_SECONDS: Final = 5.0
"""How long a tool call is held up until it is in the transcript; one that is not is told to the model by our prompt."""

GO_ON: Final = "Your process died and was started again. Go on where you stopped; do not repeat what is done."


class PerdureSessionStore:
    """A `SessionStore` of the Claude Agent SDK on a perdure store: synced, verified, the same from every machine.

    `store` is a path, `sqlite:PATH`, `postgresql://…` or `memory:`; without one, the store that the settings name. The
    SDK keeps sessions apart by the folder they run in; `project` takes its place where machines have other folders.
    """

    def __init__(self, store: str | os.PathLike[str] | None = None, *, project: str | None = None) -> None:
        self._location = None if store is None else os.fspath(store)
        self._project = project
        self._opening = threading.Lock()
        self._opened: Cabinet | None = None
        self._is_closed = False
        self._power = True
        self._told = _Told()

    async def query(
        self,
        prompt: str,
        *,
        session_id: str,
        options: ClaudeAgentOptions | None = None,
        go_on: str = GO_ON,
    ) -> AsyncIterator[Message]:
        """`claude_agent_sdk.query` in a session that is begun with `prompt`, or continued with `go_on` if it is there.

        Only one process may do so with a session at a time: call it in a `@perdure.step`, of a run that one holds.
        """
        given = options or ClaudeAgentOptions()
        if given.resume is not None or given.continue_conversation or given.session_store is not None:
            raise UsageError(
                "The options already say which session is meant, or where it is kept.",
                safe="nothing was sent.",
                hint="leave out resume, continue_conversation and session_store",
            )
        key = claude_agent_sdk.project_key_for_directory(given.cwd)
        named = self._session({"project_key": key, "session_id": session_id})
        session, is_begun, untold = await self._enter(named)
        which: dict[str, Any] = {"resume" if is_begun else "session_id": session.session_id}
        asked = "\n\n".join([go_on if is_begun else prompt, *untold])
        watched = dataclasses.replace(
            given, **which, session_store=self, session_store_flush="eager", hooks=self._hooks(given, session)
        )
        async for message in claude_agent_sdk.query(prompt=asked, options=watched):
            yield message

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Keep entries of a transcript; when this returns they are synced."""
        at = int(clock.wall_seconds() * 1000)

        def fold(previous: dict[str, Any] | None) -> dict[str, Any]:
            return dict(fold_session_summary(cast("SessionSummaryEntry | None", previous), key, entries))

        plain = cast("list[dict[str, Any]]", entries)
        if entries:
            await self._write(
                partial(transcripts.append, session=self._session(key), entries=plain, at_milliseconds=at, fold=fold)
            )
            self._told.tell(transcripts.calls_in(plain))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Every entry of a transcript; None where there is none."""
        found = await self._read(partial(transcripts.load, session=self._session(key)))
        return cast("list[SessionStoreEntry] | None", found)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project."""
        found = await self._heads(project_key)
        return [{"session_id": session_id, "mtime": head.at_milliseconds} for session_id, head in found]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """What the SDK keeps of each session of a project, to list it."""
        found = [(head.summary, head.at_milliseconds) for _, head in await self._heads(project_key)]
        told = [{**summary, "mtime": at} for summary, at in found if summary is not None]
        return cast("list[SessionSummaryEntry]", told)

    async def delete(self, key: SessionKey) -> None:
        """Remove a transcript, and with a session all that belongs to it."""
        await self._write(partial(transcripts.delete, session=self._session(key)))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The transcripts of a session's helpers."""
        return await self._read(partial(transcripts.parts, session=self._session(cast("SessionKey", key))))

    def close(self) -> None:
        """Let go of the store; what was acknowledged stays."""
        with self._opening:
            self._is_closed = True
            if self._opened is not None:
                self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _session(self, key: SessionKey) -> Session:
        return Session(self._project or key["project_key"], key["session_id"], key.get("subpath") or "")

    async def _enter(self, session: Session) -> tuple[Session, bool, list[str]]:
        """Where to go on, with all tool calls closed; whether it was begun before; and what it does not know of."""

        def enter(rows: Rows) -> tuple[Session, bool, list[str]]:
            current, is_begun = transcripts.enter(rows, session)
            closing = transcripts.orphans(rows, current)
            at = int(clock.wall_seconds() * 1000)
            transcripts.append(rows, current, closing, at_milliseconds=at, fold=lambda summary: summary or {})
            return current, is_begun, transcripts.untold(rows, session)

        return await self._write(enter)

    def _hooks(self, options: ClaudeAgentOptions, session: Session) -> Any:
        """The hooks of the options, and ours: no tool runs whose beginning could not be kept."""

        async def begins(told: Any, tool_use_id: str | None, _: Any) -> Any:
            # The program tells its transcript a moment later than it asks here: a tool that began is to be found there.
            await self._told.wait_for(tool_use_id or told["tool_use_id"])
            call = Call(told["tool_name"], told["tool_input"])
            await self._note(session, tool_use_id or told["tool_use_id"], call)
            return {}

        async def is_over(told: Any, tool_use_id: str | None, _: Any) -> Any:
            is_failed = told["hook_event_name"] == "PostToolUseFailure"
            result = told.get("error") if is_failed else told["tool_response"]
            call = Call(told["tool_name"], told["tool_input"], is_over=True, is_failed=is_failed, told=result)
            await self._note(session, tool_use_id or told["tool_use_id"], call)
            return {}

        ours = {
            "PreToolUse": HookMatcher(hooks=[begins], on_failure="block"),
            "PostToolUse": HookMatcher(hooks=[is_over]),
            "PostToolUseFailure": HookMatcher(hooks=[is_over]),
        }
        given = cast("dict[str, Any]", options.hooks or {})
        return {**given, **{name: [*given.get(name, []), hook] for name, hook in ours.items()}}

    async def _note(self, session: Session, tool_use_id: str, call: Call) -> None:
        await self._write(partial(transcripts.note_call, session=session, tool_use_id=tool_use_id, call=call))

    async def _heads(self, project_key: str) -> list[tuple[str, transcripts.Head]]:
        project = self._project or project_key
        return await self._read(lambda rows: [*transcripts.heads(rows, project)])

    async def _read(self, act: Callable[[Rows], T]) -> T:
        return await asyncio.to_thread(lambda: self._cabinet.read(act))

    async def _write(self, act: Callable[[Rows], T]) -> T:
        return await asyncio.to_thread(lambda: self._cabinet.write(act, power=self._power))

    @property
    def _cabinet(self) -> Cabinet:
        with self._opening:
            if self._is_closed:
                raise StoreUnavailable(
                    "The session store was closed.",
                    safe="what it acknowledged stands.",
                    hint="make a new PerdureSessionStore",
                )
            if self._opened is None:
                settings = current_settings()
                self._power = settings.durability == "power"
                self._opened = open_cabinet(msgspec.structs.replace(settings, store=self._location or settings.store))
            return self._opened


class _Told:
    """The tool calls that are in a transcript which is kept, and who waits for one."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._news = asyncio.Event()

    def tell(self, tool_use_ids: Iterable[str]) -> None:
        self._known.update(tool_use_ids)
        self._news.set()
        self._news = asyncio.Event()

    async def wait_for(self, tool_use_id: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TOLD_SECONDS):
                while tool_use_id not in self._known:
                    await self._news.wait()
