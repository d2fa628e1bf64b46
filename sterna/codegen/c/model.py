"""Models in C: their data as an array or by the assembler, and what announces them."""

from collections.abc import Sequence

from sterna.codegen.symbols import MODEL_SYMBOL, PACKED_PREFIX

WORD = 8
WORDS_PER_LINE = 4

_LABEL = """\
#if defined(_WIN32)
__declspec(dllexport)
#elif defined(__GNUC__)
__attribute__((visibility("default"), weak))
#endif
const char {symbol}[] = "{name}";
"""

_ARRAY = """\
/* The model's graph and parameters. */
#if defined(_WIN32)
__declspec(dllexport)
#elif defined(__GNUC__)
__attribute__((visibility("default"), aligned(64)))
#endif
const uint64_t {symbol}[] = {{
{words}
}};
"""

_ASSEMBLED = """\
/* The model's graph and parameters. */
#if defined(__APPLE__)
#define STERNA_MODEL "_{symbol}"
__asm__(".const_data\\n"
#elif defined(_WIN32)
#define STERNA_MODEL "{symbol}"
__asm__(".section .rdata,\\"dr\\"\\n"
#elif defined(__wasm__)
#define STERNA_MODEL "{symbol}"
__asm__(".section .rodata.sterna,\\"\\",@\\n.type " STERNA_MODEL ", @object\\n"
        ".size " STERNA_MODEL ", {size}\\n"
#else
#define STERNA_MODEL "{symbol}"
__asm__(".section .rodata,\\"a\\",%progbits\\n.type " STERNA_MODEL ", %object\\n"
#endif
        ".globl " STERNA_MODEL "\\n.balign 64\\n" STERNA_MODEL ":\\n"
        ".incbin \\"{file}\\"\\n"
#if !defined(__wasm__)
        ".text\\n"
#endif
);
"""

_LINKED = """\
{declarations}extern const uint64_t {data}[];
extern void *__sterna__host;
static const struct {{
  const char *name;
  int32_t (*call)(void *, const void *, int32_t, void *);
}} sterna_model_functions[] = {{
{entries}
}};
static struct {{
  void *next;
  const char *name;
  const void *data, *functions;
  size_t function_count;
  void *host;
}} sterna_linked_model = {{
  0, "{name}", {data}, sterna_model_functions, {count}, &__sterna__host
}};

/* Without the runtime in the program there is nobody to tell. */
#if defined(__GNUC__)
void sterna_register_model(void *) __attribute__((weak));
__attribute__((constructor)) static void sterna_announce_model(void) {{
  if (sterna_register_model) sterna_register_model(&sterna_linked_model);
}}
#endif
"""

_INCLUDES = "#include <stddef.h>\n#include <stdint.h>\n"


def model_text(name: str, data: bytes | bytearray) -> str:
    """C that holds a model's data as an array."""
    padded = bytes(data) + bytes(-len(data) % WORD)
    numbers = [
        f"0x{int.from_bytes(padded[at : at + WORD], 'little'):x}u"
        for at in range(0, len(padded), WORD)
    ]
    lines = [
        "  " + ", ".join(numbers[at : at + WORDS_PER_LINE])
        for at in range(0, len(numbers), WORDS_PER_LINE)
    ]
    array = _ARRAY.format(symbol=f"{MODEL_SYMBOL}_{name}", words=",\n".join(lines))
    return _INCLUDES + _LABEL.format(symbol=MODEL_SYMBOL, name=name) + array


def assembled_model_text(name: str, file: str, size: int) -> str:
    """C that holds a model's data by letting the assembler read a file of a size."""
    data = _ASSEMBLED.format(symbol=f"{MODEL_SYMBOL}_{name}", file=file, size=size)
    return _INCLUDES + _LABEL.format(symbol=MODEL_SYMBOL, name=name) + data


def linked_model_text(name: str, functions: Sequence[str]) -> str:
    """C that announces a model when the program that it is linked into starts."""
    signature = "(void *, const void *, int32_t, void *);\n"
    declarations = [f"extern int32_t {PACKED_PREFIX}{f}{signature}" for f in functions]
    entries = [f'  {{"{f}", {PACKED_PREFIX}{f}}},' for f in functions] or ["  {0, 0}"]
    return _LINKED.format(
        declarations="".join(declarations), entries="\n".join(entries), name=name,
        data=f"{MODEL_SYMBOL}_{name}", count=len(functions),
    )
