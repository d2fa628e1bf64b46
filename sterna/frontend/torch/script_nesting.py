"""How deep the code of a TorchScript file nests, before PyTorch reads it.

PyTorch's parser calls itself for every bracket and block, and ends the process where the stack
does: some thousands are enough. What PyTorch writes itself nests a few deep.
"""

import re

from sterna.frontend.torch.archive import Archive

DEEPEST = 200
MOST_CODE = 1 << 28

# Texts and remarks, in which brackets are no code but for remarks that say types; brackets; and
# blocks, which are deeper by what their lines begin with.
_TOKENS = re.compile(
    rb'"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    rb"|(?P<remark>#[^\n]*)|(?P<open>[(\[{])|(?P<close>[)\]}])|\n(?P<indent>[ \t]*)(?=[^ \t\n])",
    re.DOTALL,
)


def check_nesting(archive: Archive) -> None:
    """Raise ValueError where code nests deeper than PyTorch's parser may go."""
    for name in archive.names():
        if not name.startswith("code/") or not name.endswith(".py"):
            continue
        if _depth(archive.read(name, MOST_CODE, may_be_compressed=True)) > DEEPEST:
            raise ValueError(
                f"the code in '{name}' of {archive.name} nests brackets or blocks deeper than "
                f"{DEEPEST}, which PyTorch's parser may not survive"
            )


def _depth(code: bytes) -> int:
    depth = deepest = 0
    indents = [0]
    for token in _TOKENS.finditer(code):
        if token["open"]:
            depth += 1
            deepest = max(deepest, depth + len(indents) - 1)
        elif token["close"]:
            depth = max(0, depth - 1)
        elif token["remark"]:
            deepest = max(deepest, sum(token["remark"].count(each) for each in b"([{"))
        elif token["indent"] is not None and not depth:
            while indents[-1] > len(token["indent"]):
                indents.pop()
            if indents[-1] < len(token["indent"]):
                indents.append(len(token["indent"]))
            deepest = max(deepest, len(indents) - 1)
    return deepest
