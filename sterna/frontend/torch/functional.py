"""Programs without changes in place: every change makes a new value.

    y = select(x, 0, 1)              y  = select(x, 0, 1)
    add_(y, 1)              ->       y2 = add(y, 1)
    z = relu(x)                      x2 = select_scatter(x, y2, 0, 1)
                                     z  = relu(x2)

A view shares the memory of what it views. A change of a view is written back to what it views, and
other views of that are taken anew when they are next read.
"""

from dataclasses import dataclass, field, replace

from sterna.frontend.torch.complex_pairs import PARTS
from sterna.frontend.torch.memory import (
    BY_MEMORY,
    RENAMED,
    VIEWS,
    VIEWS_OF_LISTS,
    WRITES_BY_MEMORY,
    Layouts,
    begins_at_its_base,
    operator_of,
    shares_memory,
    written_back_by,
)
from sterna.frontend.torch.program import Argument, NumberRef, Program, ProgramOutput, Ref, Step
from sterna.support.errors import OpNotImplemented


def changes_in_place(target: str) -> bool:
    """Whether an operator changes its first argument."""
    name = operator_of(target)
    return target.startswith("aten.") and name.endswith("_") and not name.endswith("__")


def made_functional(program: Program, layouts: Layouts = lambda name: None) -> Program:
    """The same program, with a new value for every change."""
    if not any(
        changes_in_place(step.target)
        or operator_of(step.target) in (*BY_MEMORY, *WRITES_BY_MEMORY)
        for step in program.steps
    ):
        return program
    return _Functional(program, layouts).run()


@dataclass(slots=True)
class _View:
    """How a value was taken from another one."""

    base: str
    step: Step
    place: int
    key: str
    """The argument that is viewed."""
    is_known: bool
    """Whether it surely is a view, and no copy."""


@dataclass(slots=True)
class _Functional:
    program: Program
    layouts: Layouts
    steps: list[Step] = field(default_factory=list)
    views: dict[str, _View] = field(default_factory=dict)
    now: dict[str, str] = field(default_factory=dict)
    """The newest value of a name that was changed."""
    stale: set[str] = field(default_factory=set)
    """Views whose base has changed since they were taken."""
    meant: dict[str, str] = field(default_factory=dict)
    """What a name stands for since its shape was changed in place."""
    count: int = 0

    def run(self) -> Program:
        for step in self.program.steps:
            self._add(step)
        outputs = [
            replace(output, value=self._renamed(output.value)) for output in self.program.outputs
        ]
        return replace(self.program, steps=self.steps, outputs=outputs + self._changed())

    def _changed(self) -> list[ProgramOutput]:
        """New values of what lies outside of the program."""
        held = {one.value: one.name for one in self.program.weights}
        given = {one.name: one.dtype in PARTS for one in self.program.inputs}
        found = []
        for name in self.now:
            if name in held:
                found.append(ProgramOutput(Ref(self._current(name)), "buffer", held[name]))
            elif name in given:
                found.append(ProgramOutput(Ref(self._current(name)), "input", name, given[name]))
        return found

    def _add(self, step: Step) -> None:
        key = "self" if "self" in step.arguments else "input"
        base = step.arguments.get(key)
        name = operator_of(step.target)
        if name in BY_MEMORY and isinstance(base, Ref):
            base = Ref(self._memory_of(self._meaning(base.name), step))
            step = replace(step, arguments={**step.arguments, key: base})
        if name in WRITES_BY_MEMORY and isinstance(base, Ref):
            own = self._meaning(base.name)
            if self._memory_of(own, step) != own:
                raise OpNotImplemented(f"{step.name}: writing by places in the memory of a view")
        if isinstance(base, Ref) and name in RENAMED and changes_in_place(step.target):
            self._reshape(step, base.name, RENAMED[name])
            return
        if changes_in_place(step.target) and isinstance(base, Ref):
            self._change(step, self._meaning(base.name))
            return
        made = {key: self._renamed(value) for key, value in step.arguments.items()}
        self.steps.append(replace(step, arguments=made))
        if name in VIEWS and isinstance(base, Ref):
            self._note_views(name, step, key, self._meaning(base.name))
        elif name in VIEWS_OF_LISTS:
            self._note_views_of_list(step)

    def _memory_of(self, name: str, step: Step) -> str:
        """The tensor that lies in order in the memory that a step reads by places."""
        root, begins_there = name, True
        while root in self.views:
            view = self.views[root]
            begins_there = begins_there and view.is_known and begins_at_its_base(
                operator_of(view.step.target)
            )
            root = view.base
        layout = self.layouts(name)
        if step.arguments.get("storage_offset") is None and (
            layout is None or layout.is_in_order or root == name
        ):
            root = name
        elif not begins_there and step.arguments.get("storage_offset") is None:
            raise OpNotImplemented(f"{step.name}: places in the memory of a part of a tensor")
        held = self.layouts(root)
        if held is not None and not held.is_in_order:
            raise OpNotImplemented(f"{step.name}: places in memory that does not lie in order")
        return root

    def _note_views(self, name: str, step: Step, key: str, base: str) -> None:
        for place, output in enumerate(step.outputs):
            layouts = self.layouts(base), self.layouts(output)
            shares = shares_memory(name, step, *layouts)
            if shares is not False:
                self._expect_made_before(output, base, step)
                self.views[output] = _View(base, step, place, key, shares is True)

    def _note_views_of_list(self, step: Step) -> None:
        """Results that view one tensor of a list each; several operands of einsum give a copy."""
        for argument in step.arguments.values():
            given = argument if isinstance(argument, list) else [argument]
            if len(given) != len(step.outputs):
                continue
            for place, (each, output) in enumerate(zip(given, step.outputs, strict=True)):
                if isinstance(each, Ref):
                    is_known = operator_of(step.target) != "einsum"
                    self.views[output] = _View(self._meaning(each.name), step, place, "", is_known)

    def _reshape(self, step: Step, name: str, view: str) -> None:
        """A change of a tensor's shape: a view that takes over its name."""
        own = self._fresh(name)
        arguments = {**step.arguments, "self": Ref(self._meaning(name))}
        self._add(Step(f"aten.{view}.default", step.name, arguments, [own], step.trace))
        self.meant[name] = own
        for output in step.outputs[:1]:
            self.meant[output] = own

    def _meaning(self, name: str) -> str:
        while name in self.meant:
            name = self.meant[name]
        return name

    def _change(self, step: Step, name: str) -> None:
        old = self._current(name)
        made = {each: self._renamed(value) for each, value in step.arguments.items()}
        raw = self._fresh(name)
        self.steps.append(replace(step, arguments=made, outputs=[raw]))
        new = self._emit(step, "aten.type_as.default", {"self": Ref(raw), "other": Ref(old)}, name)
        self._bind(name, new, step)
        for output in step.outputs[:1]:  # the result is the same tensor
            alias = Step("aten.alias.default", step.name, {"self": Ref(name)}, [output])
            self._add(alias)

    def _bind(self, name: str, new: str, step: Step) -> None:
        """A new value for a name, for what it views, and later for other views of that."""
        root, value = name, new
        self.now[name] = new
        fresh = {name}
        while root in self.views:
            view = self.views[root]
            value = self._written_back(view, value, step)
            root = view.base
            self.now[root] = value
            fresh.add(root)
        self.stale -= fresh
        family = {root}
        for each, view in self.views.items():  # views come behind what they view
            if view.base in family:
                family.add(each)
                if not view.is_known:
                    raise OpNotImplemented(
                        f"{step.name}: a change in place beside {operator_of(view.step.target)}, "
                        "which may be a view or a copy; export the model by torch.export and "
                        "run_decompositions({})"
                    )
        self.stale |= family - fresh

    def _expect_made_before(self, name: str, base: str, step: Step) -> None:
        """Refuse views of themselves, which would never end."""
        while base != name and base in self.views:
            base = self.views[base].base
        if base == name:
            raise ValueError(f"{step.name}: '{name}' is a view of itself")

    def _written_back(self, view: _View, value: str, step: Step) -> str:
        """What is viewed, with a changed view in its place."""
        how = written_back_by(view.step.target)
        base = self._current(view.base)
        own = {name: arg for name, arg in view.step.arguments.items() if name != "self"}
        if how == "same":
            return self._emit(
                step, "aten.type_as.default", {"self": Ref(value), "other": Ref(base)}, view.base
            )
        if how == "shape":
            wanted: dict[str, Argument] = {"self": Ref(value), "other": Ref(base)}
            return self._emit(step, "aten.view_as.default", wanted, view.base)
        if how == "again":
            return self._emit(step, view.step.target, {"self": Ref(value), **own}, view.base)
        if how == "permute":
            back: list[Argument] = list(_inverse(own.get("dims"), view.step))
            arguments: dict[str, Argument] = {"self": Ref(value), "dims": back}
            return self._emit(step, view.step.target, arguments, view.base)
        if how == "moved":
            turned: dict[str, Argument] = {
                "self": Ref(value), "source": own.get("destination"),
                "destination": own.get("source"),
            }
            return self._emit(step, view.step.target, turned, view.base)
        place = _place_of(how, own, view.place)
        if place is not None:
            how, own = place
        if how.endswith("scatter"):
            given = {"self": Ref(base), "src": Ref(value), **own}
            return self._emit(step, f"aten.{how}.default", given, view.base)
        raise OpNotImplemented(
            f"{step.name}: a change in place through {operator_of(view.step.target)}; export the "
            "model by torch.export and run_decompositions({})"
        )

    # ---- names ----

    def _fresh(self, name: str) -> str:
        self.count += 1
        return f"{name}.{self.count}"

    def _emit(self, step: Step, target: str, arguments: dict[str, Argument], name: str) -> str:
        made = self._fresh(name)
        self.steps.append(Step(target, step.name, arguments, [made], step.trace))
        return made

    def _current(self, name: str) -> str:
        """The newest value of a name; a view that is out of date is taken anew."""
        chain = []
        while name in self.stale and name in self.views:
            chain.append(name)
            name = self.views[name].base
        for each in reversed(chain):
            view = self.views[each]
            given = {
                key: Ref(self._current(view.base)) if key == view.key else self._renamed(arg)
                for key, arg in view.step.arguments.items()
            }
            outputs = [
                self._fresh(each) if place == view.place else ""
                for place in range(len(view.step.outputs))
            ]
            self.steps.append(replace(view.step, arguments=given, outputs=outputs))
            self.now[each] = outputs[view.place]
            self.stale.discard(each)
        last = chain[0] if chain else name
        return self.now.get(last, last)

    def _renamed(self, argument: Argument) -> Argument:
        if isinstance(argument, list):
            return [self._renamed(part) for part in argument]
        if isinstance(argument, Ref):
            return Ref(self._current(self._meaning(argument.name)))
        if isinstance(argument, NumberRef):
            return NumberRef(self._current(argument.name))
        return argument


def _place_of(
    how: str, own: dict[str, Argument], place: int
) -> tuple[str, dict[str, Argument]] | None:
    """Which part of a tensor a view of a part is, as the operator says it that writes one back."""
    dim = own.get("dim", 0)
    if how == "unbind":
        return "select_scatter", {"dim": dim, "index": place}
    if how == "narrow":
        start, length = own.get("start"), own.get("length")
        if isinstance(start, int) and isinstance(length, int) and start >= 0:
            return "slice_scatter", {"dim": dim, "start": start, "end": start + length}
    if how == "split":
        sizes = own.get("split_sizes", own.get("split_size"))
        if isinstance(sizes, int):
            first = place * sizes
            return "slice_scatter", {"dim": dim, "start": first, "end": first + sizes}
        if isinstance(sizes, list) and place < len(sizes):
            numbers = [size for size in sizes if isinstance(size, int)]
            if len(numbers) == len(sizes):
                first = sum(numbers[:place])
                return "slice_scatter", {"dim": dim, "start": first, "end": first + numbers[place]}
    return None


def _inverse(dims: Argument, step: Step) -> list[int]:
    """The order of dimensions that takes a permutation back."""
    given = dims if isinstance(dims, list) else [None]
    rank = len(given)
    places = [dim % rank for dim in given if isinstance(dim, int) and -rank <= dim < rank]
    if sorted(places) != list(range(rank)):
        raise ValueError(f"{step.name}: it orders dimensions by {dims!r}")
    return [places.index(axis) for axis in range(len(places))]
