"""What every page of the manual has around its text: the list of pages, the search, the style."""

from collections.abc import Sequence
from html import escape

from manual_markdown import FORMATTER, Rendered

Groups = Sequence[tuple[str, Sequence[tuple[str, str]]]]

STYLE = """
:root { --ink: #1d2430; --paper: #fff; --quiet: #5b6675; --line: #dde2e8; --tint: #f5f7f9;
  --link: #1c64a5 }
@media (prefers-color-scheme: dark) { :root { --ink: #dfe4ea; --paper: #14181e; --quiet: #98a3b0;
  --line: #2c343e; --tint: #1c222a; --link: #7db7ea } }
* { box-sizing: border-box }
body { margin: 0; color: var(--ink); background: var(--paper);
  font: 16px/1.6 system-ui, sans-serif; display: grid; grid-template-columns: 17rem 1fr }
a { color: var(--link); text-decoration: none } a:hover { text-decoration: underline }
nav { padding: 1.2rem; border-right: 1px solid var(--line); background: var(--tint);
  height: 100vh; overflow-y: auto; position: sticky; top: 0; font-size: .9rem }
nav h2 { font-size: .75rem; text-transform: uppercase; color: var(--quiet); margin: 1.2rem 0 .3rem }
nav ul { list-style: none; margin: 0; padding: 0 } nav [aria-current] { font-weight: 600 }
nav input { width: 100%; padding: .4rem .6rem; border: 1px solid var(--line); border-radius: 6px;
  background: var(--paper); color: inherit; font: inherit }
main { padding: 1.5rem 2.5rem 4rem; max-width: 60rem; min-width: 0 }
h1, h2, h3 { line-height: 1.25 } h2 { margin-top: 2.2rem }
h1, h2, h3, h4 { scroll-margin-top: 1rem }
code { font: .875em ui-monospace, Menlo, Consolas, monospace; background: var(--tint);
  border-radius: 3px; padding: .1em .25em }
pre { background: var(--tint); border: 1px solid var(--line); border-radius: 6px;
  padding: .8rem 1rem; overflow-x: auto } pre code { background: none; padding: 0 }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: .9rem }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .7rem; text-align: left;
  vertical-align: top } td code { white-space: nowrap }
img { max-width: 100% } #found li { margin: .5rem 0 } #found p { margin: 0; color: var(--quiet);
  font-size: .85rem }
@media (max-width: 50rem) { body { display: block } nav { height: auto; position: static }
  main { padding: 1rem } }
""".strip()

# Every word must stand in a section; those in titles and headings count most.
SCRIPT = """
const box = document.getElementById('search'), main = document.querySelector('main');
const text = main.innerHTML, escaped = s => s.replace(/[&<>]/g, c =>
  ({'&': '&amp;', '<': '&lt;', '>': '&gt;'})[c]);
const score = (row, words) => {
  const [, title, , heading, body] = row.map(s => s.toLowerCase());
  let total = 0;
  for (const word of words) {
    const own = 8 * heading.includes(word) + 4 * title.includes(word) + body.includes(word);
    if (!own) return 0;
    total += own;
  }
  return total;
};
const around = (body, word) => {
  const at = Math.max(0, body.toLowerCase().indexOf(word) - 60);
  return (at ? '… ' : '') + body.slice(at, at + 180) + ' …';
};
const search = () => {
  const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
  if (!words.length) { main.innerHTML = text; return; }
  const found = INDEX.map(row => [score(row, words), row]).filter(([n]) => n)
    .sort(([a], [b]) => b - a).slice(0, 40);
  main.innerHTML = `<h1>${found.length ? 'Found' : 'Nothing found'}</h1><ul id="found">` +
    found.map(([, [page, title, anchor, heading, body]]) =>
      `<li><a href="${page}.html#${anchor}">${escaped(title)}${heading === title ? '' :
        ': ' + escaped(heading)}</a><p>${escaped(around(body, words[0]))}</p></li>`).join('') +
    '</ul>';
};
box.addEventListener('input', search);
main.addEventListener('click', e => {
  const link = e.target.closest('#found a');
  if (!link) return;
  e.preventDefault();  // the page itself comes back first: its anchors may be what is looked for
  box.value = '';
  main.innerHTML = text;
  location.href = link.href;
});
addEventListener('keydown', e => { if (e.key === '/' && document.activeElement !== box) {
  e.preventDefault(); box.focus(); } });
""".lstrip()


def style() -> str:
    """The style of pages, and of code by day and by night."""
    night = type(FORMATTER)(style="github-dark").get_style_defs("pre")
    day = type(FORMATTER)(style="default").get_style_defs("pre")
    return f"{STYLE}\n{day}\n@media (prefers-color-scheme: dark) {{\n{night}\n}}\npre {{ " \
        "background: var(--tint) }\n"


def wrap(name: str, page: Rendered, groups: Groups) -> str:
    """The whole page."""
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(page.title)}{'' if name == 'index' else ' · Sterna'}</title>",
        '<link rel="stylesheet" href="style.css"></head><body>',
        f"<nav>{_list(name, groups)}</nav>", f"<main>{page.body}</main>",
        '<script src="search.js"></script>', "</body></html>",
    ]) + "\n"


def _list(name: str, groups: Groups) -> str:
    parts = ['<input id="search" type="search" placeholder="Search ( / )" aria-label="Search">']
    for head, pages in groups:
        parts += [f"<h2>{head}</h2>"] if head else []
        rows = [_entry(own, title, own == name) for own, title in pages]
        parts.append(f"<ul>{''.join(rows)}</ul>")
    return "\n".join(parts)


def _entry(name: str, title: str, is_shown: bool) -> str:
    current = ' aria-current="page"' if is_shown else ""
    return f'<li><a href="{name}.html"{current}>{escape(title)}</a></li>'
