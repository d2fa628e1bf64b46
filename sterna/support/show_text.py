"""Code on the standard output, in colours where that is a terminal."""

import sys

# The classic names of styles; another name is one of Pygments' own.
STYLES = {None: "ansi_dark", "ansi": "ansi_dark", "light": "default", "dark": "monokai"}


def show_text(text: str, style: str | None = None) -> None:
    """Print code; style: "light", "dark", "ansi" or a style of Pygments."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console  # which takes long to load
    from rich.syntax import Syntax

    Console().print(Syntax(text, "python", theme=STYLES.get(style, style or ""), word_wrap=True))
