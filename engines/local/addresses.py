"""The addresses of a job's pods in its piece of 127.0.0.0/8, and the /etc/hosts in which they find each other."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from .state import read_json, write_json

_PIECE = 4096  # addresses of a job
_FIRST = 2


class Addresses:
    """Kept in `book`; `hosts` is the file, changed in place: running pods have this very file bound."""

    def __init__(self, book: Path, hosts: Path) -> None:
        self._book, self._hosts = book, hosts
        self._known: dict[str, str] = read_json(book) or {}
        self._lines: dict[str, str] | None = None

    def of(self, hostname: str, subdomain: str, subnet: int) -> str:
        """The address of `hostname` in the piece `subnet`; it keeps it until `forget`."""
        base = int(ipaddress.IPv4Address("127.0.0.0")) + subnet * _PIECE
        if hostname not in self._known or not _within(self._known[hostname], base):
            self._known = {name: address for name, address in self._known.items() if _within(address, base)}
            taken = set(self._known.values())
            free = (str(ipaddress.IPv4Address(base + number)) for number in range(_FIRST, _PIECE))
            self._known[hostname] = next(address for address in free if address not in taken)
            write_json(self._book, self._known)
        address = self._known[hostname]
        names = f"{hostname}.{subdomain} {hostname}" if subdomain else hostname
        self._show(hostname, f"{address}\t{names}\n")
        return address

    def forget(self, hostname: str) -> None:
        """Nobody will be called so again: its address may be another's."""
        self._known.pop(hostname, None)
        if self._lines is not None:
            self._lines.pop(hostname, None)

    def _show(self, hostname: str, line: str) -> None:
        if self._lines is None:
            self._lines = self._read()
        if self._lines.get(hostname) == line:
            return
        self._lines[hostname] = line
        new = not self._hosts.exists()
        with open(self._hosts, "w" if new else "r+") as stream:
            stream.write("".join(self._lines.values()))
            stream.truncate()
        if new:
            self._hosts.chmod(0o644)

    def _read(self) -> dict[str, str]:
        """The lines of the file by the name they are known by; the machine's own by what they say."""
        if not self._hosts.exists():
            text = Path("/etc/hosts").read_text().rstrip("\n") + "\n"
            return {line: line for line in text.splitlines(keepends=True)}
        lines = self._hosts.read_text().splitlines(keepends=True)
        return {self._key(line): line for line in lines}

    def _key(self, line: str) -> str:
        names = line.split()[1:]
        return names[-1] if names and names[-1] in self._known else line


def _within(address: str, base: int) -> bool:
    return 0 <= int(ipaddress.IPv4Address(address)) - base < _PIECE
