"""How a compiler and a firmware project talk: methods, as lines of JSON."""

from sterna.micro.project_api import client, server

__all__ = ["client", "server"]
