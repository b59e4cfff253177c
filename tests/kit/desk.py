"""Where campaigns are typed: `perdure crash` from outside, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests import warm
from tests.faces.conftest import Place, Result

ROOT: Final = Path(__file__).parents[2]
TYPED: Final = ("-P", "-m", "tests.kit.typed", "crash")


class Desk(Place):
    """A folder with what is to be killed; the trials take place inside it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.trials = folder / "trials"
        self.trials.mkdir()
        self.environment["TMPDIR"] = str(self.trials)
        self.environment["PYTHONPATH"] += f"{os.pathsep}{ROOT}"

    def crash(self, *words: str, **environment: str) -> Result:
        """A campaign, to its end."""
        return self._run([*TYPED, *words], None, {**warm.addresses(), **environment})

    def crashing(self, *words: str) -> subprocess.Popen[str]:
        """A campaign that is under way."""
        return warm.Popen(
            [sys.executable, *TYPED, *words],
            cwd=self.folder,
            env={**self.environment, **warm.addresses()},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
