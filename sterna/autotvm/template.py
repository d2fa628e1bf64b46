"""Templates and tasks: a template with arguments and a target has a space, and gives schedules."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from sterna.autotvm.space import Config, ConfigSpace, FallbackConfigEntity
from sterna.target import Target
from sterna.te import Schedule, Tensor
from sterna.te.flops import count_flops

Template = Callable[..., tuple[Schedule, Sequence[Tensor]]]
Workload = tuple[Any, ...]
Lookup = Callable[[Target | None, Workload], Config | None]

TEMPLATES: dict[str, Template] = {}
COMPUTES: dict[str, Callable[..., Any]] = {}
_config: ContextVar[Config | None] = ContextVar("config", default=None)
_lookups: ContextVar[tuple[Lookup, ...]] = ContextVar("lookups", default=())


def template(task_name: str) -> Callable[[Template], Template]:
    """Register a function that gives a schedule as a template.

    A call of it gives the schedule of the configuration that `apply_history_best` around it knows,
    and of the first candidates where it knows none.
    """

    def decorate(own: Template) -> Template:
        if task_name in TEMPLATES and TEMPLATES[task_name].__qualname__ != own.__qualname__:
            raise ValueError(f"there is another template '{task_name}' already")

        def wrapped(*args: Any, **kwargs: Any) -> tuple[Schedule, Sequence[Tensor]]:
            if kwargs:
                raise TypeError("templates take arguments by place: they are part of the workload")
            chosen = _config.get() or find_config(workload_of(task_name, args))
            token = _config.set(chosen)
            try:
                return own(*args)
            finally:
                _config.reset(token)

        wrapped.__qualname__ = own.__qualname__
        wrapped.__doc__ = own.__doc__
        TEMPLATES[task_name] = wrapped
        return wrapped

    return decorate


Compute = Callable[..., Any]


def register_topi_compute(task_name: str) -> Callable[[Compute], Compute]:
    """Register what an operator of one's own computes, as a function of a configuration first.

    With register_topi_schedule of the same name it is a template. A call of it, without the
    configuration, has the one that is known around it.
    """

    def decorate(own: Compute) -> Compute:
        def wrapped(*args: Any) -> Any:
            return own(_config.get() or find_config(workload_of(task_name, args)), *args)

        COMPUTES[task_name] = wrapped
        wrapped.__doc__ = own.__doc__
        return wrapped

    return decorate


def register_topi_schedule(task_name: str) -> Callable[[Compute], Compute]:
    """Register how an operator of one's own is scheduled: by a configuration and its outputs."""

    def decorate(own: Compute) -> Compute:
        def whole(*args: Any) -> tuple[Schedule, Sequence[Tensor]]:
            if task_name not in COMPUTES:
                raise ValueError(f"register_topi_compute('{task_name}') says what is computed")
            made = COMPUTES[task_name](*args)
            outputs = list(made) if isinstance(made, list | tuple) else [made]
            given = [arg for arg in args if isinstance(arg, Tensor)]
            return own(get_config(), outputs), [*given, *outputs]

        whole.__qualname__ = own.__qualname__
        template(task_name)(whole)

        def wrapped(outputs: Any, *more: Any) -> Any:
            return own(_config.get() or FallbackConfigEntity(), outputs, *more)

        return wrapped

    return decorate


def get_config() -> Config:
    """Inside of a template: what it collects or is given."""
    found = _config.get()
    if found is None:
        raise RuntimeError("get_config is for templates: functions under @autotvm.template(name)")
    return found


def workload_of(task_name: str, args: Sequence[Any]) -> Workload:
    """What a template is called with, as a key."""
    return (task_name, *(_plain(arg) for arg in args))


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return ("TENSOR", tuple(int(str(extent)) for extent in value.shape), str(value.dtype))
    return tuple(_plain(each) for each in value) if isinstance(value, list | tuple) else value


def find_config(workload: Workload) -> Config:
    """What is known for a workload around here; the first candidates if nothing is."""
    for lookup in reversed(_lookups.get()):
        found = lookup(Target.current(allow_none=True), workload)
        if found is not None:
            return found
    return FallbackConfigEntity()


@contextmanager
def looking_up(lookup: Lookup) -> Iterator[None]:
    """Templates inside find their configurations so."""
    token = _lookups.set((*_lookups.get(), lookup))
    try:
        yield
    finally:
        _lookups.reset(token)


@contextmanager
def apply_fixed_config(tasks: Sequence["Task"], schedule_names: Sequence[int]) -> Iterator[None]:
    """Templates inside have the points of these numbers, for each task its own."""
    known = {task.workload: task.config_space.get(point)
             for task, point in zip(tasks, schedule_names, strict=True)}
    with looking_up(lambda _, workload: known.get(workload)):
        yield


# What a task is measured with if all arrays are drawn.
NO_INPUTS: Mapping[str, Any] = MappingProxyType({})


class Task:
    """A template with arguments, for a target."""

    inputs: Mapping[str, Any] = NO_INPUTS
    """Arrays that it is measured with, by their tensors' names; others are drawn at random."""

    def __init__(self, name: str, args: Sequence[Any], target: Target) -> None:
        self.name, self.args, self.target = name, tuple(args), target
        self.config_space = ConfigSpace()
        schedule, _ = self.instantiate(self.config_space)
        self.flop = self.config_space.flop or float(
            sum(count_flops(stage.op, of_a_copy=0) for stage in schedule.stages)
        )

    @property
    def workload(self) -> Workload:
        """What is tuned, as a key."""
        return workload_of(self.name, self.args)

    def instantiate(self, config: Config) -> tuple[Schedule, Sequence[Tensor]]:
        """The schedule of a configuration."""
        token = _config.set(config)
        try:
            with self.target:
                made = find_template(self.name)(*self.args)
        finally:
            _config.reset(token)
        if isinstance(config, ConfigSpace) or not self.config_space.filters:
            return made
        if not all(each(config) for each in self.config_space.filters):
            config.raise_error("a filter of the template refuses this point")
        return made

    def __repr__(self) -> str:
        return f"Task(func_name={self.name}, args={self.args}, target={self.target})"


def find_template(name: str) -> Template:
    """A template by its name."""
    if name not in TEMPLATES:
        known = ", ".join(TEMPLATES) or "none"
        raise ValueError(f"there is no template '{name}'; there are {known}")
    return TEMPLATES[name]


def create(
    task_name: str | Template, args: Sequence[Any], target: Any, target_host: Any = None
) -> Task:
    """A task: a template, what it is called with, and what it is compiled for."""
    if callable(task_name):
        named = [name for name, own in TEMPLATES.items() if own is task_name]
        if not named:
            raise ValueError("a task is made of a template: a function under @autotvm.template")
        task_name = named[0]
    wanted = Target(target)
    return Task(task_name, args, wanted if target_host is None else wanted.with_host(target_host))
