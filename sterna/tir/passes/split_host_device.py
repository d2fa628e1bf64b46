"""Cut a function into what the host does and the kernels that it launches on a device.

The outermost loop over threads, and all that is inside, becomes a kernel: a function of its own
whose body stands in a nest of loops over blocks and threads, once each. The loops over threads
further inside are gone: each iteration is done by the thread of its number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import HANDLE, INT32, Call, Expr, StringImm, Var
from sterna.ir.node import Node, post_order
from sterna.ir.visitor import ExprVisitor, Rewriter
from sterna.tir.effects import has_effect
from sterna.tir.fragments import (
    OF_WARPS,
    STORE,
    WARP,
    bytes_of_a_thread,
    is_fragment,
    with_addresses,
)
from sterna.tir.passes.thread_sync import DivergentBarrierError, thread_sync
from sterna.tir.stmt import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    Tensorized,
    seq,
)
from sterna.tir.threads import (
    BLOCKS,
    DYNAMIC,
    GRID,
    LAUNCHED,
    THREAD,
    THREADS,
    is_shared,
    rank_of_scope,
)
from sterna.tir.warpgroups import TENSOR_MAP

TAKE_WORKSPACE = "__sterna_take_workspace"
GIVE_WORKSPACE_BACK = "__sterna_give_workspace_back"

TENSOR_MAPS = "tensor_maps"
"""What a kernel says of its parameters that are tensor maps: their places and what they hold."""

# Private memory of a thread beyond this is taken from the device's own.
MOST_PRIVATE_BYTES = 4096
DYNAMIC_ALIGNMENT = 1024
"""Of arrays in the shared memory that a launch gives, in bytes."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How many blocks and threads run a kernel."""

    grid: tuple[Expr, Expr, Expr]
    block: tuple[Expr, Expr, Expr]

    @property
    def block_size(self) -> int | None:
        """The threads of a block, if that is known."""
        sizes = [build.int_value(extent) for extent in self.block]
        known = [size for size in sizes if size is not None]
        return known[0] * known[1] * known[2] if len(known) == 3 else None


def launch_of(kernel: PrimFunc) -> Launch:
    """The numbers of blocks and threads that a kernel's outermost loops say."""
    extents: dict[str, Expr] = {}
    body = kernel.body
    while isinstance(body, For) and body.kind == "thread":
        extents[body.thread] = body.extent
        body = body.body
    one = build.const(1)
    blocks = [extents.get(tag, one) for tag in BLOCKS]
    threads = [extents.get(tag, one) for tag in THREADS]
    return Launch((blocks[0], blocks[1], blocks[2]), (threads[0], threads[1], threads[2]))


def split_host_device(func: PrimFunc) -> tuple[PrimFunc, list[PrimFunc]]:
    """The host's part of a function, which calls kernels by name, and these kernels."""
    func = with_addresses(func)
    splitter = _Splitter(func)
    body = splitter.rewrite(func.body)
    return func.with_body(body), splitter.kernels


class UnboundError(ValueError):
    """The host would work on memory of the device."""


class _Splitter(Rewriter):
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.kernels: list[PrimFunc] = []
        self.inside: list[Buffer] = []
        """Memory of blocks and threads that is allocated outside of kernels."""
        self.read: list[tuple[Var, Expr]] = []
        """Names of what is in the memory of the device, which only kernels can read."""
        self.anchor = next((b.data for b in func.buffers if b is not None), None)

    def visit_For(self, loop: For) -> Stmt:
        if loop.kind == "thread":
            return self.kernel(loop)
        body = self.rewrite(loop.body)
        return loop.with_body(body, "serial")  # launches are in order

    def visit_Allocate(self, allocate: Allocate) -> Stmt:
        buffer = allocate.buffer
        if rank_of_scope(buffer.scope) > 0:
            self.inside.append(buffer)
            return self.rewrite(allocate.body)  # type: ignore[no-any-return]
        return self.workspace(buffer, self.rewrite(allocate.body))

    def workspace(self, buffer: Buffer, body: Stmt) -> Stmt:
        """Memory of the device for as long as a statement of the host runs."""
        size: Expr = build.const(buffer.dtype.bytes, "int64")
        for extent in buffer.shape:
            size = size * build.cast("int64", extent)
        near = self.anchor if self.anchor is not None else build.const(0, "int64")
        taken = Call(HANDLE, "call_packed", (StringImm(TAKE_WORKSPACE), near, size))
        back = Call(INT32, "call_packed", (StringImm(GIVE_WORKSPACE_BACK), buffer.data))
        return LetStmt(buffer.data, taken, seq(body, Evaluate(back)))

    def visit_LetStmt(self, let: LetStmt) -> Stmt:
        if not _reads_memory(let.value):
            kept: Stmt = self.rewrite_children(let)
            return kept
        self.read.append((let.var, let.value))
        body: Stmt = self.rewrite(let.body)
        self.read.pop()
        return body

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        raise UnboundError(
            f"{self.func.name}: {store.buffer.name} is in the memory of a device, and no thread of "
            "it stores there: bind a loop of its stage to blockIdx.x or threadIdx.x"
        )

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        raise UnboundError(
            f"{self.func.name}: the host reads {load.buffer.name}, which is in the memory of a "
            "device; compute what depends on it inside a loop that is bound to threads"
        )

    def kernel(self, loop: For) -> Stmt:
        name = f"{self.func.name}_kernel"
        if self.kernels:
            name += str(len(self.kernels))
        for var, value in reversed(self.read):
            if var in _variables(loop):
                loop = loop.with_body(LetStmt(var, value, loop.body))
        made = _make_kernel(name, loop, self.inside, self.func.attrs)
        self.kernels.append(made.function)
        launch = launch_of(made.function)
        numbers = (*launch.grid, *launch.block, build.const(dynamic_bytes(made.function)))
        call: Stmt = Evaluate(
            Call(INT32, "call_packed", (StringImm(name), *made.arguments, *numbers))
        )
        for buffer in made.workspaces:
            call = self.workspace(buffer, call)
        return call


def dynamic_bytes(kernel: PrimFunc) -> int:
    """The shared memory that a launch of a kernel gives to each block."""
    places = dynamic_places(kernel)
    return max((place + (buffer.known_bytes or 0) for buffer, place in places.items()), default=0)


def dynamic_places(kernel: PrimFunc) -> dict[Buffer, int]:
    """Where each array begins in the shared memory that a launch gives: one behind the other."""
    found: dict[Buffer, int] = {}
    end = 0

    def look(node: Node) -> None:
        nonlocal end
        if isinstance(node, Allocate) and node.buffer.scope == DYNAMIC:
            found[node.buffer] = end
            end += -(-(node.buffer.known_bytes or 0) // DYNAMIC_ALIGNMENT) * DYNAMIC_ALIGNMENT

    post_order(kernel.body, look)
    return found


@dataclass(slots=True)
class _Made:
    function: PrimFunc
    arguments: tuple[Expr, ...]
    """What the host gives for its parameters."""
    workspaces: list[Buffer]


def _make_kernel(
    name: str, loop: For, outside: Sequence[Buffer], attrs: Mapping[str, Any]
) -> _Made:
    extents = _Extents(name)
    extents.visit(loop)
    threads = {tag: Var(tag, extents.of[tag].dtype) for tag in LAUNCHED if tag in extents.of}
    try:
        body, workspaces = _mapped(loop, extents.of, threads, at_leaves=False)
    except DivergentBarrierError:
        try:
            body, workspaces = _mapped(loop, extents.of, threads, at_leaves=True)
        except DivergentBarrierError as error:
            raise ValueError(f"{name}: {error}") from None
    maps = _TensorMaps()
    body = maps.rewrite(body)
    used = _Uses()
    used.visit(body)
    for buffer in outside:
        if buffer in used.buffers:
            body = Allocate(buffer, body)
            used.allocated.add(buffer)
    for tag in reversed(LAUNCHED):
        if tag in threads:
            zero = build.const(0, extents.of[tag].dtype)
            body = For(threads[tag], zero, extents.of[tag], "thread", body, tag)
    free = _Uses()
    free.visit(body)
    buffers = [b for b in free.buffers if b not in free.allocated and b not in used.allocated]
    addresses = {buffer.data for buffer in buffers}
    own = {b.data for b in free.allocated | used.allocated}
    known = addresses | own | {each.param for each in maps.found.values()}
    scalars = [v for v in free.vars if v not in free.bound and v not in known]
    given = (*(b.data for b in buffers), *scalars)
    mapped = list(maps.found.values())
    kept = {key: attrs[key] for key in ("noalias", "overlap") if key in attrs}
    if mapped:
        kept[TENSOR_MAPS] = {len(given) + place: each.line for place, each in enumerate(mapped)}
    kernel = PrimFunc(
        name, (*given, *(each.param for each in mapped)),
        (*buffers, *(None for _ in (*scalars, *mapped))), body, {**kept, "kernel": True},
    )
    return _Made(kernel, (*given, *(each.array for each in mapped)), workspaces)


@dataclass(frozen=True, slots=True)
class _TensorMap:
    """A parameter of a kernel that the launch makes for an array."""

    param: Var
    array: Var
    line: str


class _TensorMaps(Rewriter):
    """Makes parameters of tensor maps, one for each array and description."""

    def __init__(self) -> None:
        self.found: dict[tuple[Var, str], _TensorMap] = {}

    def visit_Call(self, call: Call) -> Expr:
        if call.op != TENSOR_MAP:
            kept: Expr = self.rewrite_children(call)
            return kept
        address, line = call.args
        assert isinstance(address, Call) and isinstance(line, StringImm)
        element = address.args[0]
        assert isinstance(element, BufferLoad), "a map is made for an array"
        array = element.buffer.data
        fresh = _TensorMap(Var(f"{array.name}.map", HANDLE), array, line.value)
        return self.found.setdefault((array, line.value), fresh).param


def _mapped(
    loop: For, extents: Mapping[str, Expr], threads: Mapping[str, Var], at_leaves: bool
) -> tuple[Stmt, list[Buffer]]:
    mapper = _Mapper(extents, threads, at_leaves)
    body = mapper.rewrite(loop)
    of_block = {var: extents[tag] for tag, var in threads.items() if tag in THREADS}
    if all(build.is_const(extent, 1) for extent in of_block.values()):
        return body, mapper.workspaces  # nobody else is there to wait for
    blocks = [extents[tag] for tag in BLOCKS if tag in extents]
    one_block = all(build.is_const(extent, 1) for extent in blocks)
    again = any(_runs_over_twice(loop, tag) for tag in threads)
    return thread_sync(body, of_block, one_block and again), mapper.workspaces


class _Extents(ExprVisitor):
    """The largest extent of the loops over each thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.of: dict[str, Expr] = {}
        self.inside: set[Var] = set()

    def visit_For(self, loop: For) -> None:
        if loop.kind == "thread" and loop.thread in LAUNCHED:
            self.add(loop)
        self.inside.add(loop.var)
        self.visit(loop.body)

    def visit_LetStmt(self, let: LetStmt) -> None:
        self.inside.add(let.var)
        self.visit_children(let)

    def add(self, loop: For) -> None:
        known, extent = self.of.get(loop.thread), loop.extent
        if any(var in self.inside for var in _variables(extent)):
            raise ValueError(
                f"{self.name}: the number of {loop.thread} is {extent}, which is known only inside "
                "the kernel; a launch needs it before"
            )
        if known is None:
            self.of[loop.thread] = extent
            return
        a, b = build.int_value(known), build.int_value(extent)
        if a is not None and b is not None:
            self.of[loop.thread] = known if a >= b else extent
        elif str(known) != str(extent):
            self.of[loop.thread] = build.maximum(known, extent)


def _variables(node: Node) -> list[Var]:
    uses = _Uses()
    uses.visit(node)
    return list(uses.vars)


def _reads_memory(expr: Expr) -> bool:
    uses = _Uses()
    uses.visit(expr)
    return bool(uses.buffers)


class _Mapper(Rewriter):
    """Loops over threads become what the thread of each number does."""

    def __init__(
        self, extents: Mapping[str, Expr], threads: Mapping[str, Var], at_leaves: bool
    ) -> None:
        self.extents = extents
        self.threads = threads
        self.at_leaves = at_leaves
        """Whether guards stand around single statements, so that all threads run all loops."""
        self.around: list[str] = []
        self.guards: dict[str, Expr] = {}
        """By threads: which of them do the statement at hand."""
        self.workspaces: list[Buffer] = []
        self.slices: dict[Buffer, tuple[Buffer, Expr]] = {}
        self.conditions: list[frozenset[str]] = []
        """The threads that each of the branches around depends on."""
        self.known = {var: frozenset([tag]) for tag, var in threads.items()}
        """The threads that a variable depends on."""
        self.shared: dict[Buffer, tuple[int, int]] = {}
        """By shared memory: the loops over threads and the branches around its allocation."""

    def visit_For(self, loop: For) -> Stmt:
        if loop.kind != "thread":
            kind = "serial" if loop.kind == "parallel" else loop.kind
            self.known[loop.var] = self.depends_on(loop.min, loop.extent)
            return For(loop.var, self.rewrite(loop.min), self.rewrite(loop.extent), kind,
                       self.rewrite(loop.body), "", loop.annotations)
        if loop.thread not in LAUNCHED:  # a virtual thread
            return For(loop.var, loop.min, loop.extent, "serial", self.rewrite(loop.body))
        tag = loop.thread
        thread = self.threads[tag]
        number = build.cast(loop.var.dtype, thread)
        body: Stmt = substitute(loop.body, {loop.var: loop.min + number})
        is_all = str(loop.extent) == str(self.extents[tag])
        # A loop over the same threads inside this one is theirs, whoever runs this one.
        at_leaves = self.at_leaves or _runs_over(loop.body, tag)
        outer = self.guards.pop(tag, None)
        if not is_all and at_leaves:
            self.guards[tag] = number < loop.extent
        self.around.append(tag)
        done: Stmt = self.rewrite(body)
        if not is_all and not at_leaves:
            done = IfThenElse(number < loop.extent, done)
        self.around.pop()
        self.guards.pop(tag, None)
        if outer is not None:
            self.guards[tag] = outer
        return done

    def visit_LetStmt(self, let: LetStmt) -> Stmt:
        depends = self.known[let.var] = self.depends_on(let.value)
        value = self.rewrite(let.value)
        if _reads_memory(let.value):  # idle threads have no elements of their own to read
            for tag, guard in self.guards.items():
                if tag in depends:
                    value = build.if_then_else(guard, value, build.const(0, value.dtype))
        return LetStmt(let.var, value, self.rewrite(let.body))

    def visit_IfThenElse(self, branch: IfThenElse) -> Stmt:
        self.conditions.append(self.depends_on(branch.condition))
        then = self.rewrite(branch.then)
        otherwise = None if branch.otherwise is None else self.rewrite(branch.otherwise)
        self.conditions.pop()
        return IfThenElse(self.rewrite(branch.condition), then, otherwise)

    def depends_on(self, *nodes: Node) -> frozenset[str]:
        """The threads whose numbers say what something is."""
        uses = _Uses()
        for node in nodes:
            uses.visit(node)
        vars_used = (*uses.vars, *(buffer.data for buffer in uses.buffers))
        return frozenset().union(*[self.known.get(var, frozenset()) for var in vars_used])

    # ---- statements that one thread does ----

    def guarded(self, stmt: Stmt, sharing: frozenset[str], tags: Sequence[str]) -> Stmt:
        """What threads of some names have in common, done by one of those who do not share it."""
        for tag in tags:
            idle = tag in self.threads and tag not in sharing
            if idle and not build.is_const(self.extents[tag], 1):
                stmt = IfThenElse(self.threads[tag].equal(0), stmt)
        for guard in self.guards.values():
            stmt = IfThenElse(guard, stmt)
        return stmt

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        indices = tuple(self.rewrite(index) for index in store.indices)
        value = self.rewrite(store.value)
        predicate = None if store.predicate is None else self.rewrite(store.predicate)
        if is_fragment(store.buffer):
            raise ValueError(
                f"{store.buffer.name} is held by the lanes of a warp ({store.buffer.scope}), and "
                "only intrinsics store there: tensorize its loops"
            )
        buffer, indices = self.placed(store.buffer, indices)
        made = BufferStore(buffer, value, indices, predicate)
        rank = rank_of_scope(store.buffer.scope)
        if store.buffer in self.slices or rank == THREAD:
            return self.private(store, made)
        if rank == GRID:
            return self.guarded(made, frozenset(self.around), LAUNCHED)
        # Threads have one piece of shared memory in common even if it is allocated inside their
        # loop. What none of them does in a way of its own there, all would do.
        loops, branches = self.shared.get(store.buffer, (0, 0))
        depends = self.depends_on(store).union(*self.conditions[branches:])
        return self.guarded(made, depends.union(self.around[loops:]), THREADS)

    def private(self, store: BufferStore, made: Stmt) -> Stmt:
        """A store to memory of each thread: idle ones do it too, but where its indices are theirs.

        They may have it for what all threads do together further inside.
        """
        depends = self.depends_on(store).union(*self.conditions)
        data = store.buffer.data
        self.known[data] = self.known.get(data, frozenset()) | depends
        for tag, guard in self.guards.items():
            if tag in depends:
                made = IfThenElse(guard, made)
        return made

    def visit_Evaluate(self, evaluate: Evaluate) -> Stmt:
        made = Evaluate(self.rewrite(evaluate.value))
        if not has_effect(made.value):
            return made
        if isinstance(made.value, Call) and made.value.op in OF_WARPS:
            return self.of_warps(made, made.value)
        return self.guarded(made, frozenset(self.around), LAUNCHED)

    def of_warps(self, made: Stmt, call: Call) -> Stmt:
        """What all lanes of a warp do. Of the warps that would store the same, one does."""
        along_x = build.int_value(self.extents.get(THREADS[0], build.const(1)))
        if along_x is None or along_x % WARP:
            raise ValueError(
                f"{call.op} is done by the {WARP} lanes of a warp, but there are {along_x} "
                f"{THREADS[0]}; bind a loop of {WARP} iterations, such as one of a stage in shared "
                f"memory, to {THREADS[0]}"
            )
        if call.op != STORE:
            return made
        idle = THREADS[0] not in self.around and along_x > WARP
        if idle:
            made = IfThenElse(self.threads[THREADS[0]] < WARP, made)
        return self.guarded(made, frozenset([*self.around, THREADS[0]]), LAUNCHED)

    def visit_Tensorized(self, done: Tensorized) -> Stmt:
        """What kernels call stands for itself; its meaning is not made of threads' statements."""
        body: Stmt = self.rewrite(done.body)
        return body if _is_known(done.body) else Tensorized(
            done.name, body, self.rewrite(done.meaning)
        )

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        return self.rewrite(attr.body)  # type: ignore[no-any-return]

    # ---- memory ----

    def visit_Allocate(self, allocate: Allocate) -> Stmt:
        buffer = allocate.buffer
        if is_shared(buffer.scope):
            self.shared[buffer] = len(self.around), len(self.conditions)
            return Allocate(buffer, self.rewrite(allocate.body))
        bytes_taken = bytes_of_a_thread(buffer)
        if is_fragment(buffer):
            self.check_fragment(buffer, bytes_taken)
            return Allocate(buffer, self.rewrite(allocate.body))
        if bytes_taken is not None and bytes_taken <= MOST_PRIVATE_BYTES:
            own = Buffer(buffer.name, buffer.dtype, buffer.shape, "local", (), buffer.alignment)
            body = _Renamer(buffer, own).rewrite(allocate.body)
            return Allocate(own, self.rewrite(body))
        self.slice_of(buffer)
        return self.rewrite(allocate.body)  # type: ignore[no-any-return]

    def check_fragment(self, buffer: Buffer, bytes_taken: int | None) -> None:
        if bytes_taken is None or bytes_taken > MOST_PRIVATE_BYTES:
            raise ValueError(
                f"{buffer.name} takes {bytes_taken or 'an unknown number of'} bytes of each "
                f"thread's registers; compute it at an inner loop, or in smaller tiles"
            )

    def slice_of(self, buffer: Buffer) -> None:
        """Give each thread a part of memory of the device."""
        size: Expr = build.const(1, "int64")
        for extent in buffer.shape:
            size = size * build.cast("int64", extent)
        count: Expr = build.const(1, "int64")
        number: Expr = build.const(0, "int64")
        for tag in reversed(LAUNCHED):
            if tag in self.threads:
                extent = build.cast("int64", self.extents[tag])
                number = number + build.cast("int64", self.threads[tag]) * count
                count = count * extent
        whole = Buffer(buffer.name, buffer.dtype, (count * size,))
        self.workspaces.append(whole)
        self.slices[buffer] = whole, number * size

    def placed(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        found = self.slices.get(buffer)
        if found is None:
            return buffer, indices
        whole, start = found
        return whole, (start + build.cast("int64", buffer.offset_of(indices)),)

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        indices = tuple(self.rewrite(index) for index in load.indices)
        buffer, indices = self.placed(load.buffer, indices)
        return BufferLoad(buffer, indices)


def _is_known(stmt: Stmt) -> bool:
    """Whether all that a statement calls are intrinsics of ours."""
    foreign: list[Node] = []
    post_order(stmt, lambda node: foreign.append(node) if (
        isinstance(node, Call) and node.op.startswith(("call_extern", "call_pure", "call_llvm"))
    ) else None)
    return not foreign


def _runs_over(stmt: Stmt, tag: str) -> bool:
    """Whether a loop over threads of a name is inside a statement."""
    found: list[Node] = []
    post_order(stmt, lambda n: found.append(n) if isinstance(n, For) and n.thread == tag else None)
    return bool(found)


def _runs_over_twice(stmt: Stmt, tag: str) -> bool:
    """Whether a loop over threads of a name is inside another one."""
    if isinstance(stmt, For) and stmt.thread == tag:
        return _runs_over(stmt.body, tag)
    return any(_runs_over_twice(part, tag) for part in stmt.children() if isinstance(part, Stmt))


class _Renamer(Rewriter):
    """Another buffer in the place of one."""

    def __init__(self, old: Buffer, new: Buffer) -> None:
        self.old, self.new = old, new

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.new if buffer is self.old else buffer

    def visit_Var(self, var: Var) -> Var:
        return self.new.data if var is self.old.data else var


class _Uses(ExprVisitor):
    """The variables and buffers of a statement."""

    def __init__(self) -> None:
        self.vars: dict[Var, None] = {}
        self.bound: set[Var] = set()
        self.buffers: dict[Buffer, None] = {}
        self.allocated: set[Buffer] = set()

    def visit_Var(self, var: Var) -> None:
        self.vars[var] = None

    def visit_For(self, loop: For) -> None:
        self.bound.add(loop.var)
        self.visit_children(loop)

    def visit_LetStmt(self, let: LetStmt) -> None:
        self.bound.add(let.var)
        self.visit_children(let)

    def visit_Let(self, let: Any) -> None:
        self.bound.add(let.var)
        self.visit_children(let)

    def visit_Allocate(self, allocate: Allocate) -> None:
        self.allocated.add(allocate.buffer)
        self.visit(allocate.body)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.buffers[load.buffer] = None
        for index in load.indices:
            self.visit(index)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.buffers[store.buffer] = None
        for part in (store.value, store.predicate, *store.indices):
            if part is not None:
                self.visit(part)
