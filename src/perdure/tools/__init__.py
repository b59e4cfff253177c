"""Tools an agent needs, each knowing how to be interrupted: files, requests, commands, git and tables.

Every tool is a plain function outside a run. Inside one it is an effect (or, where nothing is changed, a step) whose
doubt after a crash is settled by itself wherever the outside can tell. `docs/guides/tools.md` says what each one
guarantees.
"""

from perdure.tools.append import Appended, append_once
from perdure.tools.command import Finished, run_command
from perdure.tools.file import Written, write_file
from perdure.tools.git import GitFailed, git_commit, git_push
from perdure.tools.upsert import UpsertFailed, postgres_upsert, sqlite_upsert
from perdure.tools.web import RequestRefused, RequestUnconfirmed, Response, http_request

__all__ = [
    "Appended",
    "Finished",
    "GitFailed",
    "RequestRefused",
    "RequestUnconfirmed",
    "Response",
    "UpsertFailed",
    "Written",
    "append_once",
    "git_commit",
    "git_push",
    "http_request",
    "postgres_upsert",
    "run_command",
    "sqlite_upsert",
    "write_file",
]
