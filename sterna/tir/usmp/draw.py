"""A plan as a picture: buffers as boxes, steps from left to right, offsets upwards."""

from collections.abc import Sequence
from html import escape

from sterna.tir.usmp.plan import MemoryPlan

WIDTH, HEIGHT, MARGIN, LINE = 960, 480, 48, 20


def draw_plan(plan: MemoryPlan, steps: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    """The plan as SVG; resting on a box shows its buffer, on the axis a step's name.

    notes: lines below it. Where buffers lie over others, both shine through.
    """
    begin = min((b.first for b in plan.buffers), default=0)
    end = max((b.last for b in plan.buffers), default=1)
    across, up = WIDTH / (end - begin), HEIGHT / max(plan.size, 1)
    boxes = []
    for number, buffer in enumerate(plan.buffers):
        offset = plan.offsets[buffer.name]
        x = MARGIN + (buffer.first - begin) * across
        y = MARGIN + HEIGHT - (offset + buffer.size) * up
        width, height = (buffer.last - buffer.first) * across, buffer.size * up
        label = (
            f"{buffer.name}: {buffer.size} bytes at {offset}, "
            f"steps {buffer.first} up to {buffer.last}"
        )
        boxes.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
            f'fill="hsl({number * 137 % 360}, 60%, 75%)" fill-opacity="0.8" '
            f'stroke="#333" stroke-width="0.5">'
            f"<title>{escape(label)}</title></rect>"
        )
    axis = [
        f'<rect x="{MARGIN + number * across:.2f}" y="{MARGIN + HEIGHT}" width="{across:.2f}" '
        f'height="6" fill="{"#777" if number % 2 else "#bbb"}"><title>{escape(name)}</title></rect>'
        for number, name in enumerate(steps)
    ]
    below = MARGIN + HEIGHT + 24
    lines = [
        f'<text x="{MARGIN}" y="{below + LINE * number}">{escape(note)}</text>'
        for number, note in enumerate(notes, 1)
    ]
    bound = MARGIN + HEIGHT - plan.lower_bound * up
    state = "proven smallest" if plan.proven else f"at least {plan.lower_bound} are needed"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {WIDTH + 2 * MARGIN} {HEIGHT + 2 * MARGIN + LINE * len(notes)}" '
            f'font-family="sans-serif" font-size="14">',
            f'<text x="{MARGIN}" y="{MARGIN - 16}">{plan.size} bytes, {state}</text>',
            *boxes,
            *axis,
            f'<line x1="{MARGIN}" x2="{MARGIN + WIDTH}" y1="{bound:.2f}" y2="{bound:.2f}" '
            f'stroke="#c00" stroke-dasharray="6 4"/>',
            f'<text x="{MARGIN}" y="{below}">step {begin}</text>',
            f'<text x="{MARGIN + WIDTH}" y="{below}" text-anchor="end">'
            f"step {end}</text>",
            *lines,
            "</svg>",
            "",
        ]
    )
