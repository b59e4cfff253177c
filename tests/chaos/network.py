"""A network inside this machine: a hub with the server and the outside, and one namespace for each worker.

Every worker is joined to the hub by a wire of its own (veth), and a cut drops what goes either way (iptables). Nothing
of it is visible from the machine's own network. Without the right to make one, everybody shares the loopback device.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Final

HUB_ADDRESS: Final = "10.213.255.1"
NETWORK: Final = "10.213.0.0/16"


def obstacle() -> str:
    """Why partitions cannot be made here; empty where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "iptables", "nsenter", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    probe = f"chaos-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"ip netns add: {made.stderr.strip()}"
    try:
        tried = subprocess.run(
            ["ip", "netns", "exec", probe, "iptables", "-A", "INPUT", "-s", HUB_ADDRESS, "-j", "DROP"],
            capture_output=True,
            text=True,
            check=False,
        )
        return f"iptables: {tried.stderr.strip()}" if tried.returncode else ""
    finally:
        subprocess.run(["ip", "netns", "del", probe], check=False, capture_output=True)


class Network:
    """Namespaces that live as long as the campaign."""

    def __init__(self, workers: int, *, server_port: int) -> None:
        self._tag = f"chaos{os.getpid()}"
        self._server_port = server_port
        self._names = [f"{self._tag}-w{number}" for number in range(workers)]
        self._hub = f"{self._tag}-hub"
        self._make()

    def enter_hub(self) -> list[str]:
        """What to put before a command that shall run beside the server."""
        return ["nsenter", f"--net=/run/netns/{self._hub}"]

    def enter(self, worker: int) -> list[str]:
        """What to put before a command that shall run on the worker's own machine."""
        return ["nsenter", f"--net=/run/netns/{self._names[worker]}"]

    def cut(self, worker: int, *, store_only: bool) -> None:
        """Drop everything between this worker and the hub, or only what goes between it and the store."""
        port = str(self._server_port)
        for chain, side, source in (("INPUT", "--sport", "-s"), ("OUTPUT", "--dport", "-d")):
            which = ["-p", "tcp", side, port] if store_only else []
            self._in(worker, "iptables", "-I", chain, source, HUB_ADDRESS, *which, "-j", "DROP")

    def heal(self, worker: int) -> int:
        """Let everything through again; how many packets were dropped."""
        listed = self._in(worker, "iptables", "-nvxL").splitlines()
        dropped = sum(int(found[1]) for line in listed if (found := re.match(r"\s*(\d+)\s+\d+\s+DROP", line)))
        self._in(worker, "iptables", "-F")
        return dropped

    def remove(self) -> None:
        """Leave nothing behind."""
        for name in (*self._names, self._hub):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _make(self) -> None:
        _run("ip", "netns", "add", self._hub)
        _run("ip", "-n", self._hub, "link", "set", "lo", "up")
        _run("ip", "-n", self._hub, "addr", "add", f"{HUB_ADDRESS}/32", "dev", "lo")
        for number, name in enumerate(self._names):
            near, far = f"10.213.{number}.1", f"10.213.{number}.2"
            wire = f"c{os.getpid()}w{number}"
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "-n", self._hub, "link", "add", f"{wire}h", "type", "veth", "peer", f"{wire}w", "netns", name)
            for place, device, address in ((self._hub, f"{wire}h", near), (name, f"{wire}w", far)):
                _run("ip", "-n", place, "addr", "add", f"{address}/30", "dev", device)
                _run("ip", "-n", place, "link", "set", device, "up")
            _run("ip", "-n", name, "route", "add", "default", "via", near)

    def _in(self, worker: int, *command: str) -> str:
        return _run(*self.enter(worker), *command)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
