"""Looking at branches and commits of a local repository, through the git command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from perdure.resources.kinds import Fingerprint, Resource

SHORT: Final = 7
_NOT_THERE: Final = 1
_OVERRIDES: Final = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_NAMESPACE", "GIT_CEILING_DIRECTORIES"}
)
"""Variables with which git would look at another repository than the one that was named."""


def look_git(resource: Resource, *, timeout: float) -> Fingerprint:
    """The commit that a branch or a revision stands for."""
    import subprocess  # only runs that track a repository pay for it

    repository = Path(resource.options["repository"])
    if not repository.exists():
        return Fingerprint("absent", words=f"there is no repository at {repository}")
    name = resource.identity
    if resource.kind == "git_branch" and not name.startswith("refs/"):
        name = f"refs/heads/{name}"
    environment = {key: value for key, value in os.environ.items() if key not in _OVERRIDES}
    done = subprocess.run(  # noqa: S603 - the arguments cannot be options, and no shell reads them
        ["git", "-C", str(repository), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"],  # noqa: S607
        env={**environment, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode == _NOT_THERE:
        return Fingerprint("absent")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        return Fingerprint("unreachable", words=said[0] if said else f"git ended with {done.returncode}")
    commit = done.stdout.split()[-1]
    return Fingerprint("present", commit, f"at {commit[:SHORT]}")
