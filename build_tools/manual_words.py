"""The index that the search reads: a row for each section of each page, as JavaScript."""

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manual_markdown import Rendered


def search_index(pages: "dict[str, Rendered]") -> str:
    """Rows of page, title, anchor, heading and text; a script, since browsers read no others' files
    from a folder."""
    rows = [
        [name, page.title, section.anchor, section.title,
         re.sub(r"\s+", " ", " ".join(section.words))]
        for name, page in pages.items() for section in page.sections
    ]
    return f"const INDEX = {json.dumps(rows, ensure_ascii=False, separators=(',', ':'))};"
