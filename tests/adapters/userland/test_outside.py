"""What the user's code does outside of tools is told once for each place, by name; nothing else is."""

from __future__ import annotations

from pathlib import Path

from tests.adapters.userland.ground import executed, written

LOOKOUT = Path(__file__).with_name("lookout.py")


def told(script: Path, *declared: str, strict: bool = False) -> list[str]:
    """What was told of the script."""
    (script.parent / "temporary").mkdir()
    mode = "strict" if strict else ""
    shown = executed([str(LOOKOUT), str(script), mode, *declared], folder=script.parent, TMPDIR="temporary")
    assert shown.err == ""
    return shown.out.splitlines()


DONE = [
    ("open('a.txt', 'w').close()", "open a.txt"),
    ("open('a.txt', mode='a').close()", "open a.txt"),
    ("open('old', 'r+').close()", "open old"),
    ("__import__('pathlib').Path('sub/b.txt').write_text('x')", "open sub/b.txt"),
    ("os.close(os.open('a.txt', os.O_CREAT | os.O_WRONLY))", "open a.txt"),
    ("os.rename('old', 'new')", "os.rename new"),
    ("os.replace('old', 'new')", "os.rename new"),
    ("os.remove('old')", "os.remove old"),
    ("os.mkdir('folder')", "os.mkdir folder"),
    ("os.truncate('old', 0)", "os.truncate old"),
    ("os.symlink('old', 'link')", "os.symlink link"),
    ("shutil.copy('old', 'copy')", "shutil.copyfile copy"),
    ("shutil.rmtree('sub')", "shutil.rmtree sub"),
    ("sqlite3.connect('app.db').close()", "sqlite3.connect app.db"),
    ("subprocess.run(['true', 'secret'])", "subprocess.Popen true"),
    ("subprocess.run('true secret', shell=True)", "subprocess.Popen /bin/sh"),
    ("os.system('true secret')", "os.system true"),
    ("os.posix_spawn('/bin/true', ['true'], {})", "os.posix_spawn /bin/true"),
    ("socket.socket().connect_ex(('127.0.0.1', 9))", "socket.connect 127.0.0.1:9"),
    ("socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))", "socket.sendto 127.0.0.1:9"),
    ("json.dump({}, open('a.json', 'w'))", "open a.json"),
    ("logging.FileHandler('a.log').close()", "open a.log"),
]

UNTOLD = [
    "open('old').read()",
    "open('old', 'rb').read()",
    "os.open('old', os.O_RDONLY)",
    "print('x', file=sys.stderr, end='') if False else print(end='')",
    "open(os.devnull, 'w').write('x')",
    "open(1, 'w', closefd=False).write('')",
    "open('/dev/stdout', 'w')",
    "sqlite3.connect(':memory:').close()",
    "open('store/perdure.db', 'w')",
    "open('store/perdure.db-wal', 'w')",
    "os.stat('old'), os.listdir('.')",
    "socket.socket().close()",
    "socket.getaddrinfo('127.0.0.1', 9)",
    "tempfile.TemporaryFile().write(b'x')",
    "tempfile.NamedTemporaryFile().write(b'x')",
    "tempfile.TemporaryDirectory().cleanup()",
    "__import__('beside')",
    "__import__('asyncio').run(__import__('asyncio').sleep(0))",
    "__import__('concurrent.futures').futures.ThreadPoolExecutor().submit(print, end='').result()",
]

HEAD = "import json, logging, os, shutil, socket, sqlite3, subprocess, sys, tempfile\n"


def test_what_is_done_outside_is_told_with_its_place(tmp_path: Path) -> None:
    for name in ("old", *(f"old{number}" for number in range(len(DONE)))):
        written(tmp_path, "x", name)
    written(tmp_path, "x", "sub/file")
    lines = [line.replace("'old'", f"'old{number}'") for number, (line, _) in enumerate(DONE)]
    script = written(tmp_path, HEAD + "\n".join(lines) + "\n")
    expected = [what.replace(" old", f" old{number}") for number, (_, what) in enumerate(DONE)]
    assert told(script) == [f"{what} script.py:{line}" for line, what in enumerate(expected, 2)]


def test_what_changes_nothing_outside_is_not_told(tmp_path: Path) -> None:
    written(tmp_path, "x", "old")
    written(tmp_path, "", "store/x")
    written(tmp_path, "x = 1\n", "beside.py")
    assert told(written(tmp_path, HEAD + "\n".join(UNTOLD) + "\n")) == []


def test_each_place_is_told_once(tmp_path: Path) -> None:
    script = written(
        tmp_path,
        """
        def save(name):
            open(name, "w").close()
        for n in range(3):
            save(f"{n}.txt")
        open("last.txt", "w").close()
        """,
    )
    assert told(script) == ["open 0.txt script.py:2", "open last.txt script.py:5"]


def test_modules_of_the_user_are_watched_and_what_libraries_do_for_the_user_is_told(tmp_path: Path) -> None:
    written(tmp_path, "def save():\n    open('a.txt', 'w').close()\n", "beside.py")
    written(tmp_path, "def save(name):\n    open(name, 'w').close()\n", "lib/site-packages/library.py")
    script = written(
        tmp_path,
        """
        import sys
        sys.path.append("lib/site-packages")
        import beside, library
        beside.save()
        library.save("b.txt")
        """,
    )
    assert told(script) == ["open a.txt beside.py:2", "open b.txt script.py:5"]


def test_what_libraries_do_for_themselves_is_not_told(tmp_path: Path) -> None:
    written(
        tmp_path,
        """
        import os, socket, subprocess, tempfile, threading
        open("made-at-import", "w").close()
        def work():
            open(tempfile.gettempdir() + "/its-own", "w").close()
            open("../its-own", "w").close()
            os.makedirs(".cache/library")
            subprocess.run(["true"])
            socket.socket().connect_ex(("127.0.0.1", 9))
            thread = threading.Thread(target=lambda: open("by-thread", "w").close())
            thread.start()
            thread.join()
        """,
        "lib/site-packages/library.py",
    )
    script = written(tmp_path, "import sys\nsys.path.append('lib/site-packages')\nimport library\nlibrary.work()\n")
    assert told(script) == []
    assert (tmp_path / "by-thread").exists()
    assert (tmp_path / "made-at-import").exists()


def test_what_the_user_writes_to_the_temporary_folder_is_told(tmp_path: Path) -> None:
    script = written(tmp_path, "import tempfile\nopen(tempfile.gettempdir() + '/mine', 'w').close()\n")
    assert told(script) == ["open temporary/mine script.py:2"]


def test_inside_a_tool_nothing_is_told(tmp_path: Path) -> None:
    script = written(
        tmp_path,
        """
        enter(Frame(None, Scope("main"), body="tool"))
        open("a.txt", "w").close()
        enter(Frame(None, Scope("main")))
        open("b.txt", "w").close()
        """,
    )
    assert told(script) == ["open b.txt script.py:4"]


def test_what_the_project_declares_is_not_told(tmp_path: Path) -> None:
    script = written(
        tmp_path,
        """
        import os, subprocess
        os.makedirs("logs")
        open("logs/a.txt", "w").close()
        open("b.txt", "w").close()
        subprocess.run(["true"])
        """,
    )
    assert told(script, "open logs/*", "os.mkdir *", "subprocess.Popen true") == ["open b.txt script.py:4"]


def test_a_strict_watch_stops_before_the_thing_is_done(tmp_path: Path) -> None:
    script = written(tmp_path, "try:\n    open('a.txt', 'w')\nexcept Exception:\n    pass\nopen('b.txt', 'w')\n")
    assert told(script, strict=True) == ["open a.txt script.py:2", "stopped"]
    assert not (tmp_path / "a.txt").exists()
    assert (tmp_path / "unseen").exists()


def test_a_forked_process_tells_nothing_more_than_that_it_was_forked(tmp_path: Path) -> None:
    script = written(
        tmp_path,
        """
        import os
        if not os.fork():
            open("a.txt", "w").close()
            os._exit(0)
        os.wait()
        """,
    )
    assert told(script) == ["os.fork script.py:2"]
