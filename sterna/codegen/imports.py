"""What functions bring along from other hands: texts in C or LLVM IR, and LLVM's intrinsics.

Texts are the values of the attributes pragma_import_c and pragma_import_llvm.
"""

from collections.abc import Iterable

from sterna.ir.expr import Call, StringImm
from sterna.ir.node import nodes_of
from sterna.tir.stmt import AttrStmt, PrimFunc, statements_in

_LANGUAGES = ("c", "llvm")


def imported_texts(functions: Iterable[PrimFunc], language: str) -> list[str]:
    """The texts in one language, each once. A function whose texts are all in another has none."""
    found: dict[str, None] = {}
    for func in functions:
        texts = _texts(func)
        other = next(one for one in _LANGUAGES if one != language)
        if texts[other] and not texts[language]:
            raise ValueError(
                f"{func.name} imports text by the pragma import_{other}, which code for the target "
                f"{language} cannot use; give it by the pragma import_{language}"
            )
        found.update(dict.fromkeys(texts[language]))
    return list(found)


def _texts(func: PrimFunc) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {language: [] for language in _LANGUAGES}

    for stmt in statements_in(func.body):
        if not isinstance(stmt, AttrStmt):
            continue
        language = stmt.key.removeprefix("pragma_import_")
        if language in texts and language != stmt.key:
            if not isinstance(stmt.value, StringImm):
                raise ValueError(f"{func.name}: import_{language} takes text, not {stmt.value}")
            texts[language].append(stmt.value.value)
    return texts


def llvm_intrinsics(functions: Iterable[PrimFunc]) -> list[str]:
    """The names of LLVM's intrinsics that are called, each once."""
    found: set[str] = set()
    for func in functions:
        for call in nodes_of(func, Call):
            if call.op.startswith("call_llvm_"):
                name = call.args[0]
                assert isinstance(name, StringImm)
                found.add(name.value)
    return sorted(found)
