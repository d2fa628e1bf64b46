"""Where layers or networks stand beside the fastest peer: records, tables, a picture."""

import json
import math
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from contest import OURS, Contest
from rows import show

from sterna.support.write_aside import write_aside

# Of the largest number of a result: floats are summed in another order or by Winograd's way, and
# bytes may be one step of rounding apart.
MAY_DIFFER = {False: 2e-3, True: 1e-2}
# A ratio that no layer may stay below, and the one that it should reach.
FLOOR, LEAD = 0.9, 1.0


@dataclass(frozen=True)
class Standing:
    """One layer or network at one number of threads."""

    key: str
    kind: str
    variant: str
    threads: int
    times: dict[str, float]
    """Seconds by engine."""
    ratio: float | None
    """The fastest peer's time over ours: above 1 we lead."""
    fastest_peer: str
    difference: float | None
    """Of our result from the reference, or the first peer's, as a share of its largest number."""
    same: bool | None
    """Whether that is little enough."""
    share_of_bound: float | None = None
    """The least time that the machine allows, as a share of our time."""
    kernel_share: float | None = None
    """What our kernels take of our time; the rest is the call."""
    flops: int | None = None
    kernels: int | None = None
    compile_seconds: float | None = None
    failures: dict[str, str] = field(default_factory=dict)
    """Why engines are missing."""
    wrong: dict[str, float] = field(default_factory=dict)
    """How far peers are from the reference that compute something else; they do not count."""

    @property
    def worth(self) -> float:
        """What it is sorted by: a layer that we cannot run or that we get wrong comes first."""
        if self.ratio is None:
            return 0.0 if OURS in self.failures else math.inf
        return self.ratio if self.same else 0.0


def standing(
    key: str, kind: str, variant: str, threads: int, found: Contest, quantised: bool
) -> Standing:
    """What a contest came to."""
    ours, limits = found.times.get(OURS), found.limits
    known = not math.isnan(found.difference)
    return Standing(
        key, kind, variant, threads, found.times, found.ratio, found.fastest_peer,
        _finite(found.difference), found.difference <= MAY_DIFFER[quantised] if known else None,
        limits.least_seconds / ours if limits and ours else None,
        min(1.0, limits.kernel_seconds / ours) if limits and ours else None,
        limits.flops if limits else None, limits.kernels if limits else None,
        found.loading.get(OURS), {name: text[:400] for name, text in found.failures.items()},
        {name: _finite(each) or math.inf for name, each in found.wrong.items()},
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# ---- files ----


@dataclass
class Standings:
    """All that a run found, kept in a file as it goes if one is named."""

    about: dict[str, Any]
    """The machine, the versions and the settings."""
    all: list[Standing] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Standings":
        """What a file holds."""
        held = json.loads(path.read_text("utf-8"))
        return cls(held["about"], [Standing(**each) for each in held["standings"]])

    def write(self, path: Path) -> None:
        """Keep it; the file is whole at any time."""
        held = {"about": self.about, "standings": [asdict(each) for each in self.all]}
        write_aside(path, lambda at: Path(at).write_text(json.dumps(held, indent=1), "utf-8"))

    def known(self) -> set[tuple[str, int]]:
        """What was timed, by name and number of threads."""
        return {(each.key, each.threads) for each in self.all}


# ---- tables ----


def worst_first(found: Iterable[Standing]) -> list[Standing]:
    """Those that we lose, or fail at, before those that we lead."""
    return sorted(found, key=lambda each: (each.worth, each.key))


def table(found: Sequence[Standing], engines: Sequence[str]) -> tuple[tuple[str, ...],
                                                                      list[tuple[str, ...]]]:
    """A row for each, the worst first."""
    head = ("layer", "threads", *(f"{name}, ms" for name in engines), "ratio", "bound", "kernels",
            "difference")
    lines = []
    for each in worst_first(found):
        times = [_milliseconds(each.times.get(name), each.failures.get(name))
                 + " wrong" * (name in each.wrong) for name in engines]
        lines.append((
            each.key, str(each.threads), *times, _number(each.ratio), _percent(each.share_of_bound),
            _percent(each.kernel_share), _difference(each),
        ))
    return head, lines


def _milliseconds(seconds: float | None, failure: str | None) -> str:
    if seconds is None:
        return "fails" if failure else ""
    return f"{seconds * 1e3:.3f}" if seconds < 0.01 else f"{seconds * 1e3:.1f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _difference(each: Standing) -> str:
    if each.same is None:
        return ""
    told = "inf" if each.difference is None else f"{each.difference:.0e}"
    return told if each.same else f"{told} WRONG"


SUMMARY = ("class", "threads", "layers", "geometric mean", f">= {LEAD}", f"< {FLOOR}", "worst",
           "bound", "fail or differ")


def summary(
    found: Sequence[Standing], group: Callable[[Standing], str] = lambda each: each.kind
) -> list[tuple[str, ...]]:
    """A row for each group, that with the least mean first, and one for all of them."""
    rows: list[tuple[float, tuple[str, ...]]] = []
    for threads in sorted({each.threads for each in found}):
        here = [each for each in found if each.threads == threads]
        groups: dict[str, list[Standing]] = {}
        for each in here:
            groups.setdefault(group(each), []).append(each)
        made = sorted(_summed(name, threads, held) for name, held in groups.items())
        rows += made
        if len(made) > 1:
            rows.append(_summed("all", threads, here))
    return [cells for _, cells in rows]


def _summed(name: str, threads: int, held: Sequence[Standing]) -> tuple[float, tuple[str, ...]]:
    ratios = [each.ratio for each in held if each.ratio is not None]
    shares = [each.share_of_bound for each in held if each.share_of_bound]
    mean = statistics.geometric_mean(ratios) if ratios else 0.0
    wrong = sum(OURS in each.failures or each.same is False for each in held)
    return mean, (
        name, str(threads), str(len(held)), f"{mean:.2f}",
        _count(ratios, lambda ratio: ratio >= LEAD), _count(ratios, lambda ratio: ratio < FLOOR),
        _number(min(ratios, default=None)),
        _percent(statistics.geometric_mean(shares) if shares else None), str(wrong or ""),
    )


def _count(ratios: Sequence[float], holds: Callable[[float], bool]) -> str:
    number = sum(map(holds, ratios))
    return f"{number} ({number / len(ratios):.0%})" if ratios else ""


def left_out(found: Sequence[Standing], engines: Sequence[str]) -> str:
    """How many layers each engine cannot take."""
    counts = {name: sum(name in each.failures for each in found) for name in engines}
    told = [f"{name} {count}" for name, count in counts.items() if count]
    wrong = {name: sum(name in each.wrong for each in found) for name in engines}
    apart = [f"{name} {count}" for name, count in wrong.items() if count]
    return " ".join((
        *([f"Layers that an engine cannot take: {', '.join(told)}."] if told else ()),
        *([f"Layers that it computes wrong: {', '.join(apart)}."] if apart else ()),
    ))


def show_standings(found: Sequence[Standing], engines: Sequence[str], title: str, page: bool,
                   limit: int | None) -> None:
    """Print the tables; the long one with so many of the worst rows."""
    head, lines = table(found, engines)
    cut = lines if limit is None else lines[:limit]
    show(f"{title}: the worst first", head, cut, page)
    if len(cut) < len(lines):
        print(f"... and {len(lines) - len(cut)} more\n")
    show(f"{title} by class", SUMMARY, summary(found), page)
    if len({each.variant for each in found}) > 1:
        told = summary(found, lambda each: each.variant or "float32")
        show(f"{title} by variant", ("variant", *SUMMARY[1:]), told, page)
    print(left_out(found, engines))


# ---- the picture ----

WIDTH, LEFT, ROW, TOP = 900.0, 170.0, 22.0, 50.0
LOWEST, HIGHEST = 1 / 16, 16.0
STYLE = """
text { font: 12px ui-sans-serif, Helvetica, Arial, sans-serif; fill: #222 }
.axis { stroke: #ddd } .one { stroke: #222; stroke-width: 1.5 }
.lead { fill: #3b7d3b; fill-opacity: 0.55 } .near { fill: #d9a520; fill-opacity: 0.7 }
.lost { fill: #b03030; fill-opacity: 0.7 } .mean { stroke: #222; stroke-width: 2.5 }
""".strip()


def picture(found: Sequence[Standing], title: str) -> str:
    """A dot for each ratio, a row for each class, on a logarithmic axis; dots tell their names."""
    timed = [each for each in found if each.ratio is not None]
    groups: dict[str, list[Standing]] = {}
    for each in timed:
        many = len({one.threads for one in timed}) > 1
        groups.setdefault(f"{each.kind}, {each.threads}" if many else each.kind, []).append(each)
    order = sorted(groups, key=lambda name: _summed("", 1, groups[name])[0])
    height = TOP + ROW * len(order) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH:.0f} {height:.0f}">',
        f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH:.0f}" height="{height:.0f}" fill="#fff"/>',
        f'<text x="10" y="20">{escape(title)}: time of the fastest peer over ours, '
        "right of 1 we lead</text>",
    ]
    for power in range(-4, 5):
        x = _across(2.0**power)
        told = f"{2**power}" if power >= 0 else f"1/{2**-power}"
        name = "one" if power == 0 else "axis"
        parts.append(f'<line class="{name}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8:.0f}" '
                     f'y2="{height - 22:.0f}"/>')
        parts.append(f'<text x="{x - 8:.1f}" y="{height - 8:.0f}">{told}</text>')
    for row, name in enumerate(order):
        parts += _row(name, groups[name], TOP + ROW * row + ROW / 2)
    return "\n".join([*parts, "</svg>\n"])


def _row(name: str, held: Sequence[Standing], y: float) -> list[str]:
    parts = [f'<text x="10" y="{y + 4:.1f}">{escape(name)}</text>']
    for each in held:
        assert each.ratio is not None
        look = "lead" if each.ratio >= LEAD else "near" if each.ratio >= FLOOR else "lost"
        parts.append(
            f'<circle class="{look}" cx="{_across(each.ratio):.1f}" cy="{y:.1f}" r="4">'
            f"<title>{escape(each.key)}: {each.ratio:.2f}</title></circle>"
        )
    x = _across(_summed("", 1, held)[0])
    parts.append(
        f'<line class="mean" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 8:.1f}" y2="{y + 8:.1f}"/>'
    )
    return parts


def _across(ratio: float) -> float:
    """Where a ratio stands; what is beyond the ends stands at them."""
    kept = min(max(ratio, LOWEST), HIGHEST)
    share = math.log(kept / LOWEST) / math.log(HIGHEST / LOWEST)
    return LEFT + share * (WIDTH - LEFT - 20)


def write_picture(found: Sequence[Standing], path: str | os.PathLike[str], title: str) -> None:
    """Write the picture as SVG."""
    text = picture(found, title)
    write_aside(Path(path), lambda at: Path(at).write_text(text, "utf-8"))
