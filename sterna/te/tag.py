"""Tags that operations get from where they are written."""

from contextlib import ContextDecorator
from contextvars import ContextVar
from types import TracebackType

_current: ContextVar[str | None] = ContextVar("tag", default=None)


class TagScope(ContextDecorator):
    """Gives every operation that is made inside it a tag; as a decorator, inside the function."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def __enter__(self) -> "TagScope":
        if _current.get() is not None:
            raise ValueError("nested op_tag is not allowed for now")
        _current.set(self.tag)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _current.set(None)


def tag_scope(tag: str) -> TagScope:
    """with te.tag_scope("elemwise"): ..., or @te.tag_scope("elemwise") over a function"""
    return TagScope(tag)


def tag_in_scope(tag: str) -> str:
    """The tag of an operation that is made here and asks for one, or for none."""
    scope = _current.get()
    if scope is None:
        return tag
    if tag:
        raise ValueError("nested tag is not allowed for now")
    return scope
