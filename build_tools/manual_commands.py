"""A page of Markdown for each command, from the parser that reads its arguments."""

import argparse
from collections.abc import Iterator

from sterna.cli import make_parser
from sterna.cli.commands import COMMANDS

# As wide as the lines of a page's code.
COLUMNS = 90


def command_pages() -> dict[str, str]:
    """The pages by their names: command_compile, command_run, ..."""
    return {f"command_{name.replace('-', '_')}": _page(name) for name in COMMANDS}


def _page(name: str) -> str:
    """What a command is for, how it is called, and its arguments."""
    parser = _parser_of(make_parser(name), name)
    parser.formatter_class = _formatter
    head = [f"# sterna {name}", parser.description or f"{COMMANDS[name]}."]
    parts = [*head, f"```text\n{parser.format_usage().strip()}\n```"]
    nested = _commands_of(parser)
    for sub, own in nested.items():
        own.formatter_class = _formatter
        parts += [f"## {sub}", own.description or "", f"```text\n{own.format_usage().strip()}\n```",
                  _table(own)]
    return "\n\n".join([*parts, *([] if nested else [_table(parser)]), _CLOSING]) + "\n"


_CLOSING = (
    "[command_line.md](command_line.md) shows commands at work. This page is written from the "
    "command's own `--help`."
)


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, width=COLUMNS)


def _parser_of(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    return _commands_of(parser)[name]


def _commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _table(parser: argparse.ArgumentParser) -> str:
    """Arguments and what each means."""
    rows = [f"| {_cell(_called(action))} | {_plain(action, parser)} |"
            for action in _arguments(parser)]
    return "\n".join(["| argument | meaning |", "| --- | --- |", *rows])


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Those that help shows, positional ones first."""
    shown = [a for a in parser._actions
             if a.help != argparse.SUPPRESS and not isinstance(a, argparse._SubParsersAction)]
    yield from (action for action in shown if not action.option_strings)
    yield from (action for action in shown if action.option_strings)


def _called(action: argparse.Action) -> str:
    """-o FILE, --output FILE"""
    value = "" if action.nargs == 0 else f" {_value(action)}"
    if not action.option_strings:
        return _value(action)
    return ", ".join(f"{option}{value}" for option in action.option_strings)


def _value(action: argparse.Action) -> str:
    if action.metavar is not None:
        return " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def _cell(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def _plain(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """The help of an argument, with its values filled in as argparse does."""
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
