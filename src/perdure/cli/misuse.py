"""A command typed wrongly, in our three lines instead of click's usage text."""

from __future__ import annotations

import click

from perdure.errors import UsageError

_SAFE = "nothing was changed."


def explained(error: click.ClickException) -> UsageError:
    """What was typed wrongly, and how to find out what can be typed."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "perdure"
    where = f"{path} --help"
    if isinstance(error, click.NoSuchOption):
        near = [f"did you mean {' or '.join(error.possibilities)}? "] if error.possibilities else [""]
        return UsageError(f"{path} has no option {error.option_name}.", safe=_SAFE, hint=f"{near[0]}{where} lists them")
    if isinstance(error, click.MissingParameter) and error.param is not None:
        metavar = error.param.metavar or (error.param.name or "argument").upper()
        return UsageError(f"{path} needs {metavar}.", safe=_SAFE, hint=where)
    return UsageError(error.format_message(), safe=_SAFE, hint=where)
