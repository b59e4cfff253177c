"""The page of the public names: signatures and docstrings of everything in `perdure.__all__` and its modules."""

from __future__ import annotations

import dataclasses
import inspect
import re
from types import ModuleType
from typing import Any

import msgspec

import perdure
from docs.generate.markdown import block, documented, joined, opened
from perdure import events, resources, testing, tools
from perdure.policy import Retry

COLUMNS = 88
_STARS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
_INTRO = """What is on this page is public; everything else may change without notice. The first sentence of
each entry is what is promised. A `Duration` is a number of seconds, a `timedelta`, or a text such as `"90s"`,
`"8h"` or `"1d 12h"`; a `Durability` is `"power"` or `"process"`. Decorators keep the type of the function they
decorate."""
_GROUPS = {
    "Agents and runs": ("agent", "run", "start", "Handle", "restart_with"),
    "Steps and effects": ("step", "effect", "Effect", "Retry"),
    "Checks": ("Intent", "Verdict", "happened", "did_not_happen", "cannot_tell"),
    "Inside a run": ("current", "Current", "now", "uuid", "random", "patched", "progress", "map", "Mapped"),
    "Waits": ("ask", "Answer", "sleep", "sleep_until", "wait_for"),
    "From outside": ("answer", "signal", "cancel", "pause", "unpause", "subscribe", "configure"),
    "Resources": ("track", "artifact", "artifacts", "Artifact", "workdir"),
}
_MODULES = {"resources": resources, "tools": tools, "testing": testing, "events": events}


def page() -> str:
    """The whole page."""
    grouped = {name for names in _GROUPS.values() for name in names}
    rest = tuple(name for name in perdure.__all__ if name not in grouped and not _is_left_out(name))
    parts = opened("Python API", _INTRO)
    for title, names in {**_GROUPS, "Others": rest}.items():
        present = [name for name in names if name in perdure.__all__]
        parts += [f"## {title}"] if present else []
        for name in present:
            parts += entry(f"perdure.{name}", getattr(perdure, name))
    for name, module in _MODULES.items():
        parts += [f"## perdure.{name}", documented(module)]
        for public in public_names(module):
            parts += entry(f"{name}.{public}", getattr(module, public))
    parts += ["## perdure.errors", "[Every error](errors.md), with its code and its exit code."]
    return joined(parts)


def public_names(module: ModuleType) -> list[str]:
    """What a module gives to users."""
    named = getattr(module, "__all__", None)
    if named is not None:
        return sorted(named)
    return [
        name for name, thing in vars(module).items() if inspect.isclass(thing) and thing.__module__ == module.__name__
    ]


def entry(name: str, thing: Any) -> list[str]:
    """One public name."""
    if not callable(thing):
        return [f"### {name}", block(f"{name} = {thing!r}", "py")]
    parts = [f"### {name}", block(f"{name}{_signature(thing)}", "py"), documented(thing)]
    if inspect.isclass(thing):
        parts.append("\n".join(_member(member, found) for member, found in _members(thing)))
    return parts


def _signature(thing: Any) -> str:
    if inspect.isclass(thing):
        if issubclass(thing, msgspec.Struct):
            return _shown(_fields(thing))
        return _shown(_parameters(inspect.signature(thing))) if dataclasses.is_dataclass(thing) else ""
    found = inspect.signature(thing)
    return _shown(_parameters(found), _annotation(found.return_annotation))


def _parameters(signature: inspect.Signature) -> list[str]:
    shown, before = [], None
    for one in signature.parameters.values():
        if before == inspect.Parameter.POSITIONAL_ONLY != one.kind:
            shown.append("/")
        if one.kind == inspect.Parameter.KEYWORD_ONLY and before not in (one.kind, inspect.Parameter.VAR_POSITIONAL):
            shown.append("*")
        stars, default = _STARS.get(one.kind.name, ""), _default(one.default, inspect.Parameter.empty)
        shown.append(f"{stars}{one.name}{_hint(one.annotation)}{default}")
        before = one.kind
    return [one for one in shown if one != "self"]


def _fields(struct: type[msgspec.Struct]) -> list[str]:
    """The fields of a struct; their annotations are read as text, for some of the types are known to checkers only."""
    bases = [vars(base).get("__annotations__", {}) for base in reversed(struct.__mro__)]
    hints = {name: hint for base in bases for name, hint in base.items()}
    names = struct.__struct_fields__
    defaults = (msgspec.NODEFAULT,) * (len(names) - len(struct.__struct_defaults__)) + struct.__struct_defaults__
    return [
        f"{name}{_hint(hints[name])}{_default(default, msgspec.NODEFAULT)}"
        for name, default in zip(names, defaults, strict=True)
    ]


def _shown(parameters: list[str], result: str = "") -> str:
    arrow = f" -> {result}" if result else ""
    line = f"({', '.join(parameters)}){arrow}"
    if len(line) <= COLUMNS:
        return line
    return "(\n" + "".join(f"    {one},\n" for one in parameters) + f"){arrow}"


def _hint(annotation: Any) -> str:
    text = _annotation(annotation)
    return f": {text}" if text else ""


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text.strip("\"'"))


def _default(value: Any, absent: Any) -> str:
    """A default as one would type it; an object that stands for "none given" has no such form."""
    if value is absent:
        return ""
    if isinstance(value, Retry):
        return f" = Retry(attempts={value.attempts})"
    if isinstance(value, tuple) and value and all(inspect.isclass(one) for one in value):
        return f" = {value[0].__name__}"
    shown = repr(value)
    return " = ..." if shown.startswith("<") else f" = {shown}"


def _member(name: str, found: Any) -> str:
    text = documented(found).replace("\n", " ").replace("  ", " ")
    if isinstance(found, property):
        return f"- `.{name}`: {text}"
    signature = inspect.signature(found)
    result = _annotation(signature.return_annotation)
    return f"- `.{name}({', '.join(_parameters(signature))}) -> {result}`: {text}"


def _members(thing: type) -> list[tuple[str, Any]]:
    bases = [base for base in reversed(thing.__mro__) if base.__module__.startswith("perdure")]
    own = {name: found for base in bases for name, found in vars(base).items()}
    return [
        (name, found)
        for name, found in own.items()
        if not name.startswith("_") and (isinstance(found, property) or inspect.isfunction(found)) and documented(found)
    ]


def _is_left_out(name: str) -> bool:
    return name.startswith("__") or isinstance(getattr(perdure, name), ModuleType)
