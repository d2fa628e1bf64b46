"""Serves this folder, a template or a project made of it; it needs the package sterna."""

from pathlib import Path

from sterna.micro.platforms.arduino import ArduinoHandler
from sterna.micro.project_api import server

if __name__ == "__main__":
    server.main(ArduinoHandler(Path(__file__).resolve().parent))
