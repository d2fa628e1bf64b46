"""Whether this process may end: it works for another one, which notices that and goes on."""

_is_expendable = False


def become_expendable() -> None:
    """Say that another process started this one for work at which it may end."""
    global _is_expendable
    _is_expendable = True


def is_expendable() -> bool:
    """Whether nobody but the process that started this one depends on it."""
    return _is_expendable
