"""All kernels of a graph, each by itself: from the cache, or compiled in several processes."""

import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from sterna.driver.kernel import CompiledKernel, Pairs, compile_kernel
from sterna.driver.kernel_worker import Worker
from sterna.driver.workers_ahead import helpers, workers_ready
from sterna.ir.serialize import save_json
from sterna.ir.transform import PassContext
from sterna.lowering.lower_kernel import scope_of
from sterna.relay.expr import Function
from sterna.schedule.caches import MACHINE
from sterna.schedule.choose import answers_now
from sterna.schedule.config import ANSWERS
from sterna.support.cache import Cache
from sterna.support.collection import without_collection
from sterna.support.errors import HostOnlyError
from sterna.support.progress import Stage, stage
from sterna.target import Target, host_of, machine_of
from sterna.target.kind import registered
from sterna.version import __version__

# Settings that kernels depend on.
KERNEL_SETTINGS = ("tir.", "schedule.")


def compile_kernels(
    functions: dict[str, Function], target: Target, packed: bool = True,
    shares: Mapping[str, Pairs] | None = None, refused: dict[str, str] | None = None,
) -> dict[str, CompiledKernel]:
    """Each kernel by its name; packed: with a packed function around it; shares: see kernel.py.

    refused: takes those that the target's device cannot run, and why; without it that is an error.
    """
    with stage("compile kernels", len(functions)) as at, without_collection():
        made = _made(functions, target, packed, shares or {}, refused, at)
        return {name: CompiledKernel.from_bytes(made[name]) for name in functions if made[name]}


def _made(
    functions: dict[str, Function], target: Target, packed: bool, shares: Mapping[str, Pairs],
    refused: dict[str, str] | None, at: Stage,
) -> dict[str, bytes]:
    """The kernels as bytes, made under the current settings; nothing for those that are refused."""
    settings = _settings()

    def compile_here(name: str) -> bytes:
        at.begin(name)
        pairs = shares.get(name, ())
        try:
            content = compile_kernel(name, functions[name], target, packed, pairs).to_bytes()
        except HostOnlyError as error:
            if refused is None:
                raise
            refused[name], content = str(error), b""
        at.end(name)
        return content

    if settings is None:  # settings that no other process can be told
        return {name: compile_here(name) for name in functions}
    cache = Cache("kernels", 0.25)
    settings |= {"packed": packed, "targets": registered()}
    requests = {
        name: {**_request(name, f, target, _own(settings, f)), "shares": list(shares.get(name, ()))}
        for name, f in functions.items()
    }
    keys = {name: _key(request, target) for name, request in requests.items()}
    done = {
        name: found for name, key in keys.items() if (found := cache.read(key, _kept)) is not None
    }
    for name in done:
        at.end(name)
    missing = [name for name in functions if name not in done]
    for name, content in _compile_all(missing, requests, compile_here, at).items():
        if content:
            cache.put(keys[name], content)
        done[name] = content
    if missing:
        cache.trim()
    return done


def _kept(body: memoryview) -> bytes:
    """A kernel from the cache as bytes, if it is one."""
    content = bytes(body)
    CompiledKernel.from_bytes(content)
    return content


def _settings() -> dict[str, Any] | None:
    """The settings of passes that a kernel's code depends on.

    None if they are no plain data, or if somebody here watches the passes.
    """
    context = PassContext.current()
    if context.is_watched:
        return None
    given = context.config.items()
    config = {key: value for key, value in given if key.startswith(KERNEL_SETTINGS)}
    if answers := answers_now():
        config[ANSWERS] = answers
    try:
        json.dumps(config)
    except TypeError:
        return None
    return {
        "opt_level": context.opt_level, "config": config,
        "required_pass": context.required_pass, "disabled_pass": context.disabled_pass,
    }


def _own(settings: dict[str, Any], function: Function) -> dict[str, Any]:
    """The settings with those answers to questions of schedules alone that this kernel may ask.

    The answers of other kernels would make it another one to the cache.
    """
    answers: Mapping[str, str] = settings["config"].get(ANSWERS, {})
    if not answers:
        return settings
    scopes = (f"{scope_of(function)}/", f"{MACHINE}/")
    own = {q: a for q, a in answers.items() if "/" not in q or q.startswith(scopes)}
    return {**settings, "config": {**settings["config"], ANSWERS: own}}


def _request(
    name: str, function: Function, target: Target, settings: dict[str, Any]
) -> dict[str, Any]:
    return {"name": name, "function": save_json(function), "target": str(target), **settings}


def _key(request: dict[str, Any], target: Target) -> str:
    """Everything that a kernel's code depends on, as text."""
    made_by = [__version__, target.kind.fingerprint(), repr(machine_of(host_of(target)))]
    return json.dumps([*made_by, request], sort_keys=True)


def _compile_all(
    names: list[str],
    requests: dict[str, dict[str, Any]],
    compile_here: Callable[[str], bytes],
    at: Stage,
) -> dict[str, bytes]:
    """Compile here and, when that pays, in other processes at the same time."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for each in names:
        waiting.put(each)
    done: dict[str, bytes] = {}
    failed: list[str] = []
    ready = workers_ready() if names else []
    threads = [_start(_feed, one, waiting, requests, done, failed, at) for one in ready]
    start = time.thread_time()
    made_here = 0
    try:
        while (name := _next(waiting)) is not None:
            done[name] = compile_here(name)
            made_here += 1
            seconds = (time.thread_time() - start) / made_here
            while made_here <= 1 and len(threads) < helpers(seconds * waiting.qsize()):
                threads.append(_start(_feed, Worker(), waiting, requests, done, failed, at))
    finally:
        while _next(waiting) is not None:  # an error here: the others need not go on
            pass
        for thread in threads:
            thread.join()
    for each in failed:  # a process gave up: here the error shows, or the kernel compiles
        done[each] = compile_here(each)
    return done


def _start(work: Callable[..., None], *args: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=args, daemon=True)
    thread.start()
    return thread


def _next(waiting: "queue.SimpleQueue[str]") -> str | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None


def _feed(
    worker: Worker,
    waiting: "queue.SimpleQueue[str]",
    requests: dict[str, dict[str, Any]],
    done: dict[str, bytes],
    failed: list[str],
    at: Stage,
) -> None:
    """Give a process one kernel after the other."""
    try:
        while (name := _next(waiting)) is not None:
            at.begin(name)
            content = worker.compile(requests[name])
            if content is None:
                failed.append(name)
                worker.close()
                worker = Worker()
            else:
                done[name] = content
                at.end(name)
    finally:
        worker.close()
