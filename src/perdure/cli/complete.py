"""Shell completion: the script that `perdure completion` prints, and the run names that it offers.

Completing looks at the store without changing it, and says nothing where it cannot: somebody is in the middle of it.
"""

from __future__ import annotations

from typing import Annotated, Final

import click
import msgspec
from click.shell_completion import CompletionItem, get_completion_class
from msgspec import Meta, Struct

from perdure.cli.mode import COMPLETING, is_terminal
from perdure.cli.options import json_option, looking, store_option
from perdure.cli.screen import dim, print_json, say, tell
from perdure.errors import UsageError
from perdure.records import RunState, WaitReason
from perdure.store.protocol import Which

OFFERED: Final = 50
"""So many runs are offered, the newest first."""

_PEOPLE: Final = Which(states=(RunState.WAITING, RunState.QUEUED, RunState.RUNNING), reasons=("", WaitReason.HUMAN))
_MEANT: Final = {
    "approve": _PEOPLE,
    "reject": _PEOPLE,
    "answer": _PEOPLE,
    "signal": Which(unfinished=True),
    "settle": Which(states=(RunState.WAITING, RunState.QUEUED), reasons=("", WaitReason.IN_DOUBT)),
    "resume": Which(unfinished=True),
    "cancel": Which(unfinished=True),
    "pause": Which(unfinished=True),
    "unpause": Which(states=(RunState.WAITING,)),
    "retry": Which(states=(RunState.FAILED,)),
}
"""Which runs a command can mean; any where it is not named here."""

_INSTALL: Final = {
    "bash": 'add this line to ~/.bashrc:  eval "$(perdure completion bash)"',
    "zsh": 'add this line to ~/.zshrc, below compinit:  eval "$(perdure completion zsh)"',
    "fish": "perdure completion fish > ~/.config/fish/completions/perdure.fish",
}


class Completion(Struct, frozen=True):
    """How a shell learns to complete perdure's commands."""

    shell: Annotated[str, Meta(description="bash, zsh or fish")]
    install: Annotated[str, Meta(description="how to install it, in words")]
    script: Annotated[str, Meta(description="what the shell has to read")]


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(list(_INSTALL)))
@json_option(Completion)
@store_option
def completion(shell: str, *, as_json: bool) -> None:
    """Print what makes SHELL complete commands, options and the names of runs.

    \b
    bash  eval "$(perdure completion bash)"          in ~/.bashrc
    zsh   eval "$(perdure completion zsh)"           in ~/.zshrc, below compinit
    fish  perdure completion fish > ~/.config/fish/completions/perdure.fish
    """  # noqa: D301 - \b is click's mark for text that is not rewrapped
    script = _script(shell)
    if as_json:
        print_json(Completion(shell, _INSTALL[shell], script))
        return
    say(script)
    if is_terminal():
        tell(dim(f"# to install it, {_INSTALL[shell]}"))


def run_names(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """The runs whose name or id begins like that, of those the command can mean; none where anything is in the way."""
    meant = _MEANT.get(context.info_name or "", Which())
    which = msgspec.structs.replace(meant, beginning=incomplete)
    try:
        with looking() as store:
            runs = store.find_runs(which, limit=OFFERED)
    except Exception:  # noqa: BLE001 - whoever types must not be disturbed
        return []
    words = {run.name if run.name.startswith(incomplete) else run.run_id: run for run in reversed(runs)}
    return [CompletionItem(word, help=f"{run.agent} {run.state}") for word, run in reversed(words.items())]


def _script(shell: str) -> str:
    known = get_completion_class(shell)
    if known is None:
        raise UsageError(
            f"click knows no shell {shell!r}.", safe="nothing was changed.", hint="perdure completion bash"
        )
    root = click.get_current_context().find_root().command
    return known(root, {}, "perdure", COMPLETING).source()
