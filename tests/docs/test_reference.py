"""The reference: made from the code, complete, and each thing in it explained at its source."""

from __future__ import annotations

import inspect
import re

import click
import msgspec
import pytest

import perdure as package
from docs.generate import PAGES, REFERENCE
from docs.generate.api import public_names
from docs.generate.contracts import described, nested, shape_of, titles
from docs.generate.errors import every
from docs.generate.markdown import documented, sentence
from perdure import errors, events, resources, settings, tools
from perdure.cli import COMMANDS, perdure


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_as_the_code_is_now(name: str) -> None:
    assert _read(name) == PAGES[name](), f"docs/reference/{name} is stale: make docs"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented_and_explained(name: str) -> None:
    section = _section(_read("cli.md"), f"perdure {name}")
    command = perdure.get_command(click.Context(perdure), name)
    assert command is not None
    assert (command.help or "").strip(), f"{name} has no help"
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"{name} {parameter.opts} has no help"
            assert all(option in section for option in parameter.opts), parameter.opts
        elif isinstance(parameter, click.Argument):
            assert parameter.make_metavar(click.Context(command)) in section


@pytest.mark.parametrize("name", COMMANDS)
def test_what_may_be_left_out_is_in_brackets_and_nothing_else_is(name: str) -> None:
    command = perdure.get_command(click.Context(perdure), name)
    assert command is not None
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            shown = parameter.make_metavar(click.Context(command))
            assert shown.startswith("[") is not parameter.required, shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_a_store_and_answers_programs(name: str) -> None:
    command = perdure.get_command(click.Context(perdure), name)
    assert command is not None
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--store", "--json"} <= options


@pytest.mark.parametrize("name", COMMANDS)
def test_every_field_that_a_program_gets_is_documented_and_explained(name: str) -> None:
    shape = shape_of(name)
    assert shape is not None, f"perdure {name} says nothing to programs"
    page = _read("json.md")
    for struct, title in [(shape, f"perdure {name} --json"), *((one, titles()[one]) for one in nested(shape))]:
        section = _section(page, title)
        for field in msgspec.structs.fields(struct):
            assert described(field), f"{struct.__name__}.{field.name} has no description"
            assert f"`{field.encode_name}`" in section, f"{struct.__name__}.{field.name}"


def test_no_two_objects_of_a_program_share_a_heading() -> None:
    assert sorted(titles().values()) == sorted(set(titles().values()))


def test_every_setting_is_documented_and_explained() -> None:
    page = _read("settings.md")
    for field in msgspec.structs.fields(settings.Settings):
        assert described(field), field.name
        assert f"`{field.name}` | `PERDURE_{field.name.upper()}`" in page


def test_every_error_is_documented_with_its_codes() -> None:
    page = _read("errors.md")
    for kind in every(errors.PerdureError):
        section = _section(page, kind.__name__)
        assert f"`code` `{kind.code}`, exit code {kind.exit_code}" in section
        assert documented(kind) in section
    assert all(f"| `{kind.__name__}` |" in page for kind in every(errors.Signal))
    named = {
        name for name, kind in vars(errors).items() if inspect.isclass(kind) and kind.__module__ == errors.__name__
    }
    assert named == {kind.__name__ for kind in (*every(errors.PerdureError), *every(errors.Signal))}


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in every(errors.PerdureError)]
    assert sorted(codes) == sorted(set(codes))


def test_every_public_name_is_documented_and_its_first_sentence_stands_alone() -> None:
    page = _read("api.md")
    named = [(f"perdure.{name}", getattr(package, name)) for name in package.__all__]
    for module in (resources, tools, events):
        short = module.__name__.rpartition(".")[2]
        named += [(f"{short}.{name}", getattr(module, name)) for name in public_names(module)]
    for name, thing in named:
        if callable(thing):
            assert f"### {name}\n" in page, name
            assert sentence(thing).endswith("."), f"{name}: {sentence(thing)!r}"


def _read(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def _section(page: str, title: str) -> str:
    """What stands below a heading, up to the next one."""
    found = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]
