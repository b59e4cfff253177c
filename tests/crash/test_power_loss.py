"""The power fails while steps are acknowledged: the default loses none of them; the weaker mode says what it may lose.

A file system in a file is shut down under the running agent, without its journal being flushed, and mounted again:
what was only in memory is gone, as it would be after a real loss of power.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.crash.workshop import PATIENCE_SECONDS, Workshop
from tests.summary import note

TRIALS: Final = 20
IMAGE_MEGABYTES: Final = 24
_FS_IOC_SHUTDOWN: Final = 0x8004587D
_WITHOUT_FLUSHING: Final = 2
_CAN_MOUNT: Final = os.geteuid() == 0 and shutil.which("mkfs.ext4") is not None
needs_loop = pytest.mark.skipif(not _CAN_MOUNT, reason="a file system in a file needs root and mkfs.ext4")


class Disk:
    """A file system of our own, whose power can be cut."""

    def __init__(self, folder: Path) -> None:
        self._image = folder / "disk.img"
        self.place = folder / "disk"
        self.place.mkdir()

    def format(self) -> None:
        with self._image.open("wb") as image:
            image.truncate(IMAGE_MEGABYTES * 1024 * 1024)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self._image)], check=True)

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self._image), str(self.place)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.place)], check=True)

    def cut_power(self) -> None:
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _FS_IOC_SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING))
        finally:
            os.close(descriptor)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    subprocess.run(["umount", "--lazy", str(made.place)], check=False, capture_output=True)


def lose_power(disk: Disk, notes: Path, durability: str, acknowledge: int) -> Workshop:
    """Let the labour go on until so many steps are acknowledged, cut the power under it, and mount again."""
    disk.format()
    disk.mount()
    notes.mkdir()
    workshop = Workshop(disk.place / "store" / "perdure.db", notes, count=400)
    with workshop.start(PERDURE_DURABILITY=durability) as process:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(workshop.noted("acknowledged")) < acknowledge:
            assert process.poll() is None
            assert time.monotonic() < deadline
        disk.cut_power()
        process.send_signal(signal.SIGKILL)
        process.communicate()
    disk.unmount()
    disk.mount()
    return workshop


def many_losses(disk: Disk, folder: Path, durability: str) -> int:
    """Lose power again and again, in the middle of new runs; how many acknowledged steps that cost."""
    acknowledged = lost = in_doubt = 0
    for trial in range(TRIALS):
        workshop = lose_power(disk, folder / f"notes-{trial}", durability, random.randrange(5, 250))
        acknowledged += len(workshop.acknowledged())
        lost += len(workshop.lost())
        in_doubt += workshop.finish(PERDURE_DURABILITY=durability)
        disk.unmount()
    print(
        f"\n{durability}: {TRIALS} losses of power, {acknowledged} acknowledged, {lost} lost,"
        f" {TRIALS} resumed, 0 effects repeated, {in_doubt} in doubt"
    )
    losses = {"lost": lost} if durability == "power" else {}  # the weaker mode may lose them, and says so
    note(
        f"power loss, {durability}",
        trials=TRIALS,
        landed={"losses of power": TRIALS},
        planned=TRIALS,
        in_doubt=in_doubt,
        **losses,
    )
    assert acknowledged > 5 * TRIALS
    return lost


@needs_loop
@pytest.mark.torture
def test_no_acknowledged_step_is_lost_when_the_power_fails(disk: Disk, tmp_path: Path) -> None:
    assert many_losses(disk, tmp_path, "power") == 0


@needs_loop
@pytest.mark.torture
def test_in_process_mode_a_loss_of_power_may_cost_steps_and_repeats_no_effect(disk: Disk, tmp_path: Path) -> None:
    # Were nothing lost in twenty trials, this disk would not show that the default mode keeps its promise either.
    assert many_losses(disk, tmp_path, "process") > 0
