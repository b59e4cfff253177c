"""The user's modules, compiled for a run, are what they are without perdure: executed both ways, and compared."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

import pytest

from perdure.adapters.userland.source import compiled
from tests.adapters.userland.ground import executed, guarded, same, written

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY = Path(sysconfig.get_path("stdlib"))


def test_an_uncaught_exception_is_shown_as_without_perdure(tmp_path: Path) -> None:
    shown = same(
        written(
            tmp_path,
            '''
            import random

            def inner(values):
                """Doc."""
                return random.choice(
                    values
                )

            async def middle(values):
                return inner(values)

            def outer():
                import asyncio
                asyncio.run(middle([]))

            outer()
            ''',
        )
    )
    assert shown.code == 1
    assert "in inner" in shown.err
    assert "script.py" in shown.err


def test_a_caught_traceback_has_no_frame_of_ours(tmp_path: Path) -> None:
    shown = same(
        written(
            tmp_path,
            """
            import traceback

            class Desk:
                def work(self, depth):
                    if not depth:
                        raise ValueError("here")
                    self.work(depth - 1)

            try:
                Desk().work(3)
            except ValueError:
                print(traceback.format_exc())
            """,
        )
    )
    assert "adapters" not in shown.out


def test_code_that_looks_at_its_callers_sees_them(tmp_path: Path) -> None:
    same(
        written(
            tmp_path,
            """
            import inspect, logging, sys, warnings
            from collections import namedtuple

            logging.basicConfig(format="%(funcName)s %(lineno)d %(message)s", stream=sys.stdout, level="INFO")

            def who():
                return sys._getframe(1).f_code.co_name, inspect.stack()[1].lineno

            def caller():
                logging.info("told", stacklevel=2)
                warnings.warn("old", stacklevel=2)
                return who()

            def deep(n):
                return n and deep(n - 1)

            print(caller())
            print(deep(sys.getrecursionlimit() - 60))
            print(namedtuple("P", "a").__module__)
            """,
        )
    )


def test_functions_are_inspected_as_they_are_written(tmp_path: Path) -> None:
    shown = same(
        written(
            tmp_path,
            '''
            """The module's own docstring."""
            import inspect
            import typing

            def plain(a, /, b: int = 1, *rest: str, key: "float" = 2.0, **more: bytes) -> dict[str, int]:
                """What it does."""
                return {}

            async def later(when):
                return when

            def without(): ...

            def only_doc():
                """All there is."""

            def deco(f):
                return f

            @deco
            @deco
            def decorated(
                a,
            ):
                global plain
                return a

            print(__doc__)
            for f in (plain, later, without, only_doc, decorated, deco):
                code = f.__code__
                print(inspect.signature(f), inspect.getsource(f), f.__doc__, f.__annotations__, f.__defaults__)
                print(f.__kwdefaults__, f.__name__, f.__qualname__, f.__module__, f.__dict__, f.__wrapped__
                      if hasattr(f, "__wrapped__") else None, type(f), f.__globals__ is globals())
                print(code.co_firstlineno, code.co_varnames, code.co_argcount, code.co_flags, code.co_freevars)
                print(inspect.iscoroutinefunction(f), typing.get_type_hints(f) if f is plain else "")
            print(sorted(name for name in dir() if "perdure" in name.lower()))
            print(sorted(name for name in dir(__builtins__) if "perdure" in name.lower()))
            ''',
        )
    )
    assert shown.out.endswith("[]\n[]\n")


def test_decorators_of_the_library_work(tmp_path: Path) -> None:
    same(
        written(
            tmp_path,
            """
            import abc, contextlib, dataclasses, enum, functools, typing, uuid, time

            class Shape(abc.ABC):
                count = 0

                @property
                def area(self): return 4

                @area.setter
                def area(self, value): self.set = value

                @staticmethod
                def make(n=1): return n

                @classmethod
                def named(cls, n): return cls.__name__, n

                @abc.abstractmethod
                def draw(self): ...

                @functools.cached_property
                def slow(self): Shape.count += 1; return Shape.count

                def __init_subclass__(cls, **kwargs): cls.kind = kwargs.get("kind")

                def __class_getitem__(cls, item): return item

            class Square(Shape, kind="s"):
                def draw(self): return super().__repr__()[:10], __class__.__name__

            try:
                Shape()
            except TypeError as error:
                print(error)
            square = Square()
            square.area = 3
            print(square.area, square.set, Shape.make(2), square.named(3), square.draw(), square.slow, square.slow)
            print(Square.kind, Shape["x"], Shape.__abstractmethods__, Shape.draw.__isabstractmethod__)

            @functools.cache
            def cached(n): print("made", n); return n
            print(cached(1), cached(1), cached.cache_info())

            @functools.singledispatch
            def shown(value): return "any"
            @shown.register
            def _(value: int): return "int"
            print(shown(1), shown("a"))

            @typing.overload
            def over(a: int) -> int: ...
            @typing.overload
            def over(a: str) -> str: ...
            def over(a): return a
            print(over(1), len(typing.get_overloads(over)))

            @contextlib.contextmanager
            def opened(): print("in"); yield 1; print("out")
            with opened() as one: print(one)

            @dataclasses.dataclass(order=True, slots=True)
            class Point:
                x: int
                y: list = dataclasses.field(default_factory=list)
                def __post_init__(self): self.y.append(self.x)
                def norm(self): return abs(self.x)
            print(Point(1), Point(-1).norm(), Point(1) < Point(2), dataclasses.asdict(Point(2)))

            @dataclasses.dataclass
            class Late:
                id: uuid.UUID = dataclasses.field(default_factory=uuid.uuid4)
                at: float = dataclasses.field(default_factory=time.time)
            print(type(Late().id), type(Late().at), Late().id == Late().id)

            class Colour(enum.Enum):
                RED = 1
                def describe(self): return self.name
                @classmethod
                def first(cls): return cls.RED
                random = 2
            print(Colour.RED.describe(), Colour.first(), list(Colour), Colour.random)

            class Proto(typing.Protocol):
                def sample(self) -> int: ...
            @typing.runtime_checkable
            class Runtime(Proto, typing.Protocol): ...
            """,
        )
    )


def test_models_of_pydantic_validate(tmp_path: Path) -> None:
    same(
        written(
            tmp_path,
            """
            from __future__ import annotations
            from datetime import datetime, time
            from typing import Annotated
            from uuid import UUID, uuid4
            from pydantic import BaseModel, Field, computed_field, field_validator, model_validator, validate_call

            class Order(BaseModel):
                id: UUID = Field(default_factory=uuid4)
                at: time
                when: datetime = Field(default_factory=datetime.now)
                name: Annotated[str, Field(min_length=1)]

                @field_validator("name")
                @classmethod
                def tidy(cls, value: str) -> str: return value.strip()

                @model_validator(mode="after")
                def whole(self) -> Order: return self

                @computed_field
                @property
                def size(self) -> int: return len(self.name)

            order = Order(at="10:00", name=" tea ")
            print(order.name, order.at, order.size, type(order.id), type(order.when))
            print(Order.model_json_schema())

            @validate_call
            def priced(order: Order, amount: int = 1) -> int: return amount * order.size
            print(priced({"at": "10:00", "name": "x"}, "4"))
            """,
        )
    )


def test_tools_of_langchain_are_made_of_functions(tmp_path: Path) -> None:
    same(
        written(
            tmp_path,
            '''
            import asyncio
            from langchain_core.tools import StructuredTool, tool

            @tool
            def weather(city: str, days: int = 1) -> str:
                """The weather in a city."""
                return f"{city} {days}"

            @tool(parse_docstring=True)
            async def news(topic: str) -> str:
                """The news.

                Args:
                    topic: what about.
                """
                return topic

            print(weather.args, weather.description, weather.invoke({"city": "Oslo"}))
            print(news.args, asyncio.run(news.ainvoke({"topic": "tea"})))
            print(StructuredTool.from_function(weather.func).name)
            ''',
        )
    )


def test_all_of_the_language_is_compiled(tmp_path: Path) -> None:
    same(
        written(
            tmp_path,
            """
            from __future__ import annotations
            import asyncio
            from random import random as chance, sample
            from types import SimpleNamespace as N

            def when(x: time, y: random.choice = None) -> now: return x
            print(when.__annotations__)
            answer = N(choices=[N(message=N(content="hi"))], time=3, now=lambda: "now", random=N(choice=1))
            print(answer.choices[0].message.content, answer.time, answer.now(), answer.random.choice)
            answer.time += 1
            answer.choices[0].sample = [sample for sample in (1, 2)]
            del answer.random
            print(answer.time, answer.choices[0].sample, f"{answer.time=} {answer.time:>{answer.time}}")

            def matched(value):
                match value:
                    case {"time": time, **rest} if time: return time, rest
                    case N(time=1): return "one"
                    case [first, *choices]: return first, choices
                    case answer.time: return "same"
                    case _: return None
            print(matched({"time": 1, "a": 2}), matched(N(time=1)), matched([1, 2]), matched(4), matched(5))

            if (time := 5) > 4: print(time)
            print([now := n for n in range(2)], now, {k: (lambda today=k: today)() for k in "ab"})

            def counter():
                count = 0
                def increase(by=1):
                    nonlocal count
                    count += by
                    return count
                return increase
            one, two = counter(), counter()
            print(one(), one(), two(), one.__closure__[0].cell_contents)

            def generated(n):
                got = yield n
                yield from (got, n)
            it = generated(1)
            print(next(it), it.send(5), list(it))
            async def streamed():
                for n in range(2): yield n
            async def collected(): return [n async for n in streamed()]
            print(asyncio.run(collected()))
            def outer():
                def inner(x=(yield 1)): return x
                return inner
            print(list(outer()))

            class Mangled:
                __secret = 1
                def __private(self, __x=2): return self.__secret + __x
                def shown(self): return self.__private()
                def time(self): return "mine"
                choice = property(lambda self: "mine too")
            print(Mangled().shown(), Mangled().time(), Mangled().choice, Mangled.time.__name__)
            print(type(chance()), len(sample(range(9), 3)), callable(chance))
            try: print(undefined.time)
            except NameError as error: print(error)
            def unbound():
                print(time)
                time = 1
            try: unbound()
            except UnboundLocalError as error: print(error)
            print(locals() is globals(), (lambda: sorted(locals()))(), [sorted(locals()) for _ in "a"])
            def has_locals(a, b=2): return sorted(locals())
            print(has_locals(1))
            """,
        )
    )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters came with Python 3.12")
def test_type_parameters_are_compiled(tmp_path: Path) -> None:
    same(
        written(
            tmp_path,
            """
            import datetime
            type Moment[T: datetime.time] = list[T] | datetime.time
            def first[T](values: list[T]) -> T: return values[0]
            class Box[T]:
                def get(self, time: T) -> T: return time
            print(first([1]), Box[int]().get(2), Moment.__value__, first.__type_params__)
            """,
        )
    )


def test_classes_of_the_script_are_pickled(tmp_path: Path) -> None:
    same(
        written(
            tmp_path,
            """
            import copy, pickle

            class Note:
                def __init__(self, text): self.text = text
                def shown(self): return self.text

            def helper(n): return n + 1

            again = pickle.loads(pickle.dumps([Note("a"), helper, Note.shown]))
            print(again[0].shown(), again[1] is helper, again[2] is Note.shown, Note.__module__)
            print(copy.deepcopy(Note("b")).shown(), copy.copy(helper) is helper)
            """,
        )
    )


def test_code_is_sent_to_another_process_by_value(tmp_path: Path) -> None:
    """As cloudpickle does: the code object with its constants, rebuilt where nothing was compiled for a run."""
    receiver = written(
        tmp_path,
        """
        import pickle, sys, types
        name, code, consts = pickle.load(open("sent", "rb"))
        import marshal
        plain = marshal.loads(code)
        function = types.FunctionType(plain.replace(co_consts=consts), {"random": __import__("random")})
        print(function(2))
        """,
        "receiver.py",
    )
    shown = guarded(
        written(
            tmp_path,
            """
            import marshal, pickle, random
            def work(n): return n * 2 + 0 * random.random()
            code = work.__code__
            plain = code.replace(co_consts=tuple(None for _ in code.co_consts))
            with open("sent", "wb") as sent: pickle.dump(("work", marshal.dumps(plain), code.co_consts), sent)
            """,
        )
    )
    assert shown == ("", "", 0)
    assert executed([str(receiver)], folder=tmp_path).out == "4.0\n"


def test_pools_of_processes_run_functions_of_the_script(tmp_path: Path) -> None:
    same(
        written(
            tmp_path,
            """
            import multiprocessing, sys

            def work(n): return n * 2

            if __name__ == "__main__":
                for method in ("fork", "spawn"):
                    with multiprocessing.get_context(method).Pool(1) as pool:
                        print(pool.map(work, [1, 2]))
            """,
        )
    )


def test_syntax_errors_are_shown_as_without_perdure(tmp_path: Path) -> None:
    assert "SyntaxError" in same(written(tmp_path, "def f(:\n    pass\n")).err
    assert "SyntaxError" in same(written(tmp_path, "x = 1\nreturn x\n")).err
    assert "IndentationError" in same(written(tmp_path, "def f():\nx\n")).err


def test_texts_in_any_encoding_and_depth_are_compiled(tmp_path: Path) -> None:
    latin = tmp_path / "latin.py"
    latin.write_bytes("# coding: latin-1\nprint('é', __file__[-8:])\n".encode("latin-1"))
    assert same(latin).out == "é latin.py\n"[:2] + "latin.py\n"
    deep = written(tmp_path, "x = " + "+".join(["1"] * 900) + "\nprint(x)\n", "deep.py")
    assert same(deep).out == "900\n"
    assert same(written(tmp_path, "", "empty.py")).code == 0


def test_only_lines_that_python_traces_are_traced(tmp_path: Path) -> None:
    """What coverage tools and debuggers live on."""
    same(
        written(
            tmp_path,
            '''
            import random, sys, time

            def tool(
                a,
                b=2,
            ):
                """Doc."""
                if a > b:
                    return random.random() < 2
                return time.time() > 0

            class C:
                @staticmethod
                def one(): return 1

                def two(self):
                    def nested():
                        return 2
                    return nested()

            seen = []
            def trace(frame, event, arg):
                if frame.f_code.co_filename == __file__ and event == "line":
                    seen.append(frame.f_lineno)
                return trace
            sys.settrace(trace)
            tool(1), tool(3), C.one(), C().two()
            sys.settrace(None)
            print(seen)
            ''',
        )
    )


def test_modules_beside_the_script_are_compiled_and_libraries_are_not(tmp_path: Path) -> None:
    written(tmp_path, "def one(): return 1\nvalue = one()\n", "beside.py")
    written(tmp_path, "from .part import two\n", "package/__init__.py")
    written(tmp_path, "def two(): return 2\n", "package/part.py")
    written(tmp_path, "", ".venv/pyvenv.cfg")
    written(tmp_path, "def three(): return 3\n", ".venv/lib/installed.py")
    shown = guarded(
        written(
            tmp_path,
            """
            import sys
            sys.path.append(".venv/lib")
            import beside, installed, json, package
            from importlib import resources, reload
            def marked(f): return any(type(each).__name__ == "Guard" for each in f.__code__.co_consts)
            print(marked(beside.one), marked(package.two), marked(installed.three), marked(json.loads))
            print(beside.__loader__.get_source("beside").count("one"), beside.__spec__.origin == beside.__file__)
            print(resources.files(package).joinpath("part.py").read_text(), reload(beside).value)
            """,
        )
    )
    assert shown == ("True True False False\n2 True\ndef two(): return 2\n 1\n", "", 0)


def test_caches_of_plain_modules_are_neither_used_nor_written(tmp_path: Path) -> None:
    written(tmp_path, "def one(): return 'plain'\n", "beside.py")
    script = written(tmp_path, "import beside\nprint(beside.one(), len(beside.one.__code__.co_consts))\n")
    assert guarded(script).out.startswith("plain ")
    assert not list(tmp_path.rglob("*.pyc"))
    before = executed([str(script)], folder=tmp_path)
    (cache,) = tmp_path.rglob("*.pyc")
    kept = cache.read_bytes(), cache.stat().st_mtime_ns
    # A cache that says otherwise for the same source would be believed by whoever reads it.
    source = (tmp_path / "beside.py").stat()
    other = written(tmp_path, "def one(): return 'other'\n", "beside.py")
    os.utime(other, ns=(source.st_atime_ns, source.st_mtime_ns))
    assert executed([str(script)], folder=tmp_path) == before
    assert guarded(script).out.startswith("other ")
    assert (cache.read_bytes(), cache.stat().st_mtime_ns) == kept


def test_functions_for_compilers_of_bytecode_are_left_alone() -> None:
    code = compiled("import numba\n@numba.njit(cache=True)\ndef f(random): return random\ndef g(): pass\n", "x.py")
    marked = {each.co_name: any(_is_ours(constant) for constant in each.co_consts) for each in _codes(code)}
    assert marked == {"<module>": True, "f": False, "g": True}


@pytest.mark.parametrize("sampled", [pytest.param(1, marks=pytest.mark.exhaustive), 40])
def test_the_standard_library_keeps_its_functions_lines_and_variables(sampled: int) -> None:
    files = [path for path in sorted(LIBRARY.rglob("*.py")) if not {"test", "site-packages"} & set(path.parts)]
    for path in files[::sampled]:
        text = path.read_bytes()
        try:
            plain = compile(text, str(path), "exec", dont_inherit=True)
        except SyntaxError:
            continue
        for before, after in zip(_codes(plain), _codes(compiled(text, str(path))), strict=True):
            assert _facts(before) == _facts(after), path
            # The guard stands on the first line of a statement, of which Python may trace only another.
            assert len(_lines(after) ^ _lines(before)) <= 1, (path, before)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _facts(code: CodeType) -> tuple[object, ...]:
    shape = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_firstlineno
    return code.co_qualname, *shape, code.co_varnames, code.co_freevars, code.co_cellvars


def _lines(code: CodeType) -> set[int]:
    return {line for *_, line in code.co_lines() if line}


def _is_ours(constant: object) -> bool:
    return type(constant).__module__.startswith("perdure.")
