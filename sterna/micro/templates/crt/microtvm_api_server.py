"""Serves this folder, a template or a project made of it; it needs the package sterna."""

from pathlib import Path

from sterna.micro.platforms.host import HostHandler
from sterna.micro.project_api import server

if __name__ == "__main__":
    server.main(HostHandler(Path(__file__).resolve().parent))
