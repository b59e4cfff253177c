"""`python -m perdure.testing.model_server`: a model server as a process of its own, which prints its address."""

from __future__ import annotations

import runpy
import signal
import sys
from pathlib import Path

import click

from perdure.asked import Bell
from perdure.errors import PerdureError, UsageError
from perdure.testing.model_server.invent import plain
from perdure.testing.model_server.invent import use_tools as use_every_tool
from perdure.testing.model_server.server import ModelServer


@click.command("python -m perdure.testing.model_server")
@click.option("--port", default=0, show_default=True, help="The port to listen on; 0 for any that is free.")
@click.option("--script", type=click.Path(path_type=Path), help="A Python file with `def script(model)`.")
@click.option("--fresh-ids", is_flag=True, help="Give every answer new ids, even to the same request.")
@click.option("--use-tools", is_flag=True, help="Without a script: call every tool on offer, one a turn.")
@click.option("--until-stdin-closes", is_flag=True, help="End when whoever started this has gone.")
def serve(*, port: int, script: Path | None, fresh_ids: bool, use_tools: bool, until_stdin_closes: bool) -> None:
    """Answer as a model, at an address on this machine, until it is told to stop."""
    model = ModelServer(port=port, fresh_ids=fresh_ids, default=use_every_tool if use_tools else plain)
    try:
        if script is not None:
            _read(script, model)
        model.start()
    except PerdureError as error:
        click.echo("\n".join(error.lines()), err=True)
        raise SystemExit(error.exit_code) from error
    stopped = Bell()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.ring())
    click.echo(model.url)
    if until_stdin_closes:
        sys.stdin.read()
    else:
        stopped.wait(None)
    model.close()


def _read(path: Path, model: ModelServer) -> None:
    """Let a file write the script."""
    hint = "write a Python file with `def script(model): model.says(...)`"
    try:
        named = runpy.run_path(str(path))
        write = named.get("script")
    except Exception as error:
        raise UsageError(
            f"The script {path} cannot be read: {error!r}.", safe="nothing was started.", hint=hint
        ) from error
    if not callable(write):
        raise UsageError(f"The script {path} has no function `script`.", safe="nothing was started.", hint=hint)
    try:
        write(model)
    except Exception as error:
        raise UsageError(f"The script {path} raised {error!r}.", safe="nothing was started.", hint=hint) from error


if __name__ == "__main__":
    serve()
