"""Builds the C runtime (shared, static, one file), its Python binding and the memory planner."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "build_tools"), str(HERE / "runtime")]

import amalgamate  # noqa: E402
import compilers  # noqa: E402
import platforms  # noqa: E402
import windows_python  # noqa: E402

PLATFORM = platforms.wanted()
WINDOWS = PLATFORM.system == "win32"
BY_ZIG_FOR_WINDOWS = WINDOWS and PLATFORM.zig_target is not None
MAC = PLATFORM.system == "darwin"

# The runtime is made small: what is hot in a model is the model's own code.
SMALL = ["-Os", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables", "-ffunction-sections",
         "-fdata-sections"]

if BY_ZIG_FOR_WINDOWS:
    # -s: Python's own -g makes zig write the name of a temporary file into each object.
    C_FLAGS = ["-O2", "-g0", "-s", "-std=c11"]
    RUNTIME_FLAGS = [*C_FLAGS, *SMALL]
    SHARED_NAME, SHARED_FLAGS, EXTENSION_FLAGS = "sterna.dll", ["-s"], ["-s"]
elif WINDOWS:
    C_FLAGS = ["/O2", "/std:c11", "/experimental:c11atomics"]
    RUNTIME_FLAGS = C_FLAGS
    SHARED_NAME, SHARED_FLAGS, EXTENSION_FLAGS = "sterna.dll", [], []
elif MAC:
    C_FLAGS = ["-O2", "-g0", "-std=c11", "-fvisibility=hidden"]
    RUNTIME_FLAGS = [*C_FLAGS, *SMALL]
    SHARED_NAME = "libsterna.dylib"
    SHARED_FLAGS = ["-Wl,-install_name,@rpath/libsterna.dylib", "-Wl,-rpath,@loader_path",
                    "-Wl,-dead_strip"]
    # The interpreter that loads an extension brings the symbols of Python.
    EXTENSION_FLAGS = ["-Wl,-rpath,@loader_path/../native/lib", "-undefined", "dynamic_lookup"]
else:
    C_FLAGS = ["-O2", "-g0", "-std=c11", "-fvisibility=hidden"]
    RUNTIME_FLAGS = [*C_FLAGS, *SMALL]
    SHARED_NAME = "libsterna.so"
    # The library's code runs in pool threads, so it is never unloaded.
    SHARED_FLAGS = ["-Wl,-soname,libsterna.so", "-Wl,-z,nodelete", "-Wl,-s", "-Wl,--gc-sections",
                    "-Wl,-Bsymbolic", "-Wl,--hash-style=gnu", "-Wl,-rpath,$ORIGIN", "-lpthread",
                    "-ldl"]
    EXTENSION_FLAGS = ["-Wl,-rpath,$ORIGIN/../native/lib", "-Wl,-s"]
    if PLATFORM.machine == "aarch64":  # as sterna.support.cross does for any library
        SHARED_FLAGS.append("-Wl,-z,norelro")


# Libraries beside the runtime, which it loads when they are first asked for: folders and files.
PARTS = {
    "cuda": ("gpu/kernels.c", "gpu/cuda*.c"), "opencl": ("gpu/kernels.c", "gpu/opencl*.c"),
    "vm": ("vm/*.c",),
}


def import_library_flags(path: Path) -> list[str]:
    """On Windows a library is linked with by way of another file."""
    return [f"-Wl,--out-implib,{path}"] if BY_ZIG_FOR_WINDOWS else []


class BuildNative(build_ext):
    """Puts the runtime into sterna/native, then builds the extension against it."""

    def run(self) -> None:
        """Build everything; setuptools calls this."""
        compilers.choose(PLATFORM.zig_target)
        self.stays_in_place = bool(self.inplace)  # the extensions are built elsewhere, and copied
        super().run()

    def get_ext_filename(self, fullname: str) -> str:
        """Where an extension module goes; its name tells what it was built for."""
        return str(Path(*fullname.split("."))) + PLATFORM.extension_suffix

    def build_extensions(self) -> None:
        """Build the runtime first: the extension links with it."""
        native = self.package_root() / "native"
        if BY_ZIG_FOR_WINDOWS:  # all of its code may lie anywhere, without being told
            compiler = self.compiler.compiler_so
            self.compiler.set_executables(compiler_so=[w for w in compiler if w != "-fPIC"])
        self.write_sources(native)
        self.build_runtime(native)
        for extension in self.extensions:
            extension.include_dirs = [str(native / "include")]
            extension.library_dirs = [str(native / "lib")]
        if BY_ZIG_FOR_WINDOWS:
            self.link_as_windows_does(native)
        super().build_extensions()

    def link_as_windows_does(self, native: Path) -> None:
        """Extension modules name the libraries that they import from, Python's among them."""
        include = windows_python.headers(Path(self.build_temp))
        python = windows_python.import_library(include)
        for extension in self.extensions:
            extension.include_dirs.insert(0, str(include))
            own = [str(native / "lib" / "sterna.lib")] if extension.libraries else []
            extension.libraries = []
            extension.extra_objects = [*own, str(python)]

    def package_root(self) -> Path:
        """The package's folder: in the checkout for an editable install, else in the build."""
        in_place = self.stays_in_place or getattr(self, "editable_mode", False)
        return (HERE if in_place else Path(self.build_lib)) / "sterna"

    def write_sources(self, native: Path) -> None:
        """The headers, and the whole runtime and the RPC server as one C file each."""
        for folder in ("include", "src", "lib"):
            (native / folder).mkdir(parents=True, exist_ok=True)
        for header in ("sterna.h", "sterna.hpp"):
            shutil.copyfile(HERE / "runtime" / header, native / "include" / header)
        for name, folder in (("sterna.c", "src"), ("rpc_server.c", "rpc")):
            text = amalgamate.amalgamate(folder)
            (native / "src" / name).write_text(text, encoding="utf-8")
        shutil.copyfile(HERE / "runtime" / "wasm" / "interface.c", native / "src" / "wasm.c")

    def build_runtime(self, native: Path) -> None:
        """The shared and the static library."""
        objects = self.compiler.compile(
            [str(native / "src" / "sterna.c")],
            output_dir=self.build_temp,
            include_dirs=[str(native / "include")],
            macros=[("STERNA_BUILD", "1")],
            extra_preargs=RUNTIME_FLAGS,
        )
        shared = native / "lib" / SHARED_NAME
        shared.unlink(missing_ok=True)  # a process that has it loaded keeps its own copy
        flags = [*SHARED_FLAGS, *import_library_flags(shared.with_suffix(".lib"))]
        self.compiler.link_shared_object(objects, str(shared), extra_postargs=flags)
        self.compiler.create_static_lib(objects, "sterna", output_dir=str(native / "lib"))
        for kind, patterns in PARTS.items():
            self.build_part(native, kind, patterns)

    def build_part(self, native: Path, kind: str, patterns: Sequence[str]) -> None:
        """A library of a kind of GPU or of the virtual machine."""
        sources = [path for each in patterns for path in sorted((HERE / "runtime").glob(each))]
        objects = self.compiler.compile(
            [str(path.relative_to(HERE)) for path in sources],
            output_dir=str(Path(self.build_temp) / kind),
            include_dirs=[str(native / "include"), str(sources[0].parent)],
            extra_preargs=RUNTIME_FLAGS,
        )
        shared = native / "lib" / SHARED_NAME.replace("sterna", f"sterna_{kind}")
        shared.unlink(missing_ok=True)
        if BY_ZIG_FOR_WINDOWS:
            objects, libraries = [*objects, str(native / "lib" / "sterna.lib")], []
        else:
            libraries = ["sterna"]
        self.compiler.link_shared_object(
            objects, str(shared), libraries=libraries, library_dirs=[str(native / "lib")],
            extra_postargs=[
                *(flag.replace("sterna", f"sterna_{kind}") for flag in SHARED_FLAGS),
                *import_library_flags(Path(self.build_temp) / f"{kind}.lib"),  # for nobody
            ],
        )


core: dict[str, Any] = {
    "sources": sorted(str(p.relative_to(HERE)) for p in HERE.glob("sterna/runtime/core/*.c")),
    "depends": ["sterna/runtime/core/core.h", "runtime/sterna.h"],
    "libraries": ["sterna"],
    "extra_compile_args": C_FLAGS,
    "extra_link_args": EXTENSION_FLAGS,
}
packer: dict[str, Any] = {
    "sources": sorted(str(p.relative_to(HERE)) for p in HERE.glob("sterna/tir/usmp/packer/*.c")),
    "depends": ["sterna/tir/usmp/packer/search.h"],
    "extra_compile_args": C_FLAGS,
    "extra_link_args": EXTENSION_FLAGS if WINDOWS else EXTENSION_FLAGS[1:],
}
setup(
    ext_modules=[
        Extension("sterna.runtime._core", **core),
        Extension("sterna.tir.usmp._packer", **packer),
    ],
    cmdclass={"build_ext": BuildNative},
    options={"bdist_wheel": {"plat_name": PLATFORM.wheel}} if PLATFORM.wheel else {},
)
