"""What programs name and the engine decides by itself: taken by name or with options, checked."""

from typing import Any, ClassVar, Self


class Named:
    """A kind of thing that is made by its name; options are kept as they were given."""

    what: ClassVar[str] = "kind"
    kinds: ClassVar[dict[str, type["Named"]]] = {}
    options_known: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **options: Any) -> None:
        unknown = [name for name in options if name not in self.options_known]
        if unknown:
            raise TypeError(f"{type(self).__name__} has no option {', '.join(unknown)}; there are "
                            f"{', '.join(self.options_known) or 'none'}")
        self.options = options

    @classmethod
    def create(cls, kind: str, *args: Any, **options: Any) -> Any:
        """One by its name."""
        if kind not in cls.kinds:
            raise ValueError(f"{cls.what} '{kind}' is unknown; there are {', '.join(cls.kinds)}")
        return cls.kinds[kind](*args, **options)

    @classmethod
    def check(cls, given: Any) -> None:
        """Raise ValueError for a name that means nothing, TypeError for what is none of these."""
        if isinstance(given, str):
            cls.create(given)
        elif not isinstance(given, cls):
            raise TypeError(f"{cls.what} is a name or a {cls.__name__}, not {given!r}")

    def clone(self) -> Self:
        """Another one with the same options."""
        return type(self)(**self.options)
