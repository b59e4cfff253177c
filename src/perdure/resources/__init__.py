"""References to things outside a run, and how to tell whether they are still as they were.

A resource names something: a file, a directory, a git branch or commit, a URL, an environment variable, the working
directory, or whatever a function of yours can fingerprint. `perdure.track` records what it looked like; before a
run is resumed everything it tracked is looked at again. Nothing here reads or writes a journal.
"""

from perdure.resources.kinds import (
    IGNORED,
    Fingerprint,
    Resource,
    cwd,
    directory,
    env,
    file,
    git_branch,
    git_commit,
    url,
)
from perdure.resources.registry import custom

__all__ = [
    "IGNORED",
    "Fingerprint",
    "Resource",
    "custom",
    "cwd",
    "directory",
    "env",
    "file",
    "git_branch",
    "git_commit",
    "url",
]
