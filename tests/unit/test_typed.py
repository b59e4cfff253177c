from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import perdure

SOURCES = Path(perdure.__file__).parent
BUILTIN = {"Any", "Raw", "bool", "bytes", "dict", "float", "int", "list", "msgspec", "object", "str", "tuple"}
"""Of these there is nothing to learn."""

FIRST_MET_BY_ALL = """
import sys, threading, types
import msgspec
from perdure import codec, typed

sys.setswitchinterval(1e-6)
KINDS = {"struct": "class {name}(msgspec.Struct):", "dataclass": "@dataclasses.dataclass\\nclass {name}:"}


def made(number):
    module = types.ModuleType(f"made_{number}")
    sys.modules[module.__name__] = module
    lines = ["import dataclasses, msgspec"]
    for each in range(6):
        lines += [KINDS[sys.argv[1]].format(name=f"Part{each}"), "    a: int", "    b: str", "    c: 'list[int]'"]
    lines += [KINDS[sys.argv[1]].format(name="Whole"), *(f"    part{each}: 'Part{each} | None'" for each in range(6))]
    exec("\\n".join(lines), module.__dict__)
    return module.Whole


def read(way, whole):
    part = {"a": 1, "b": "x", "c": [1]}
    text = msgspec.json.encode({f"part{each}": part for each in range(6)})
    return codec.unseal(text, whole) if way == "codec" else typed.read(text, whole)


for number in range(40):
    whole, start, found = made(number), threading.Barrier(6), []

    def meet():
        start.wait()
        found.append(read(sys.argv[2], whole))

    threads = [threading.Thread(target=meet) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [type(one) for one in found] == [whole] * 6, found
print("read by all")
"""


@pytest.mark.parametrize("way", ["codec", "typed"])
@pytest.mark.parametrize("kind", ["struct", "dataclass"])
def test_a_class_that_many_threads_meet_at_once_is_read_by_all(kind: str, way: str) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", FIRST_MET_BY_ALL, kind, way]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (result.returncode, result.stdout) == (0, "read by all\n"), result.stderr


def test_nothing_else_reads_data_to_a_class() -> None:
    found = [
        f"{path.relative_to(SOURCES)}: {ast.unparse(node)}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.name != "typed.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _learns(node)
    ]
    assert found == [
        # Nothing but what JSON has passes the condition.
        "codec/hints.py: msgspec.json.Decoder(annotation)",
        # The type is a holder, which was learnt when it was made.
        "codec/hints.py: msgspec.convert({'value': value}, holder, builtin_types=_RESTORED, dec_hook=_load_unknown)",
    ]


def _learns(call: ast.Call) -> bool:
    """Whether this call makes msgspec learn a class."""
    match ast.unparse(call.func):
        case "msgspec.json.decode" | "msgspec.msgpack.decode":
            kinds = [each.value for each in call.keywords if each.arg == "type"]
        case "msgspec.json.Decoder" | "msgspec.msgpack.Decoder":
            kinds = call.args[:1]
        case "msgspec.convert":
            kinds = call.args[1:2]
        case _:
            return False
    return any(isinstance(each, ast.Name) and each.id not in BUILTIN for kind in kinds for each in ast.walk(kind))
