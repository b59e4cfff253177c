"""What the tools of every script do to the outside: a line in a file, which is there once they return."""

import os


def act(name: str, what: object) -> str:
    """Do it."""
    descriptor = os.open("outside", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{name} {what}\n".encode())
    os.close(descriptor)
    return f"{name} {what}: done"
