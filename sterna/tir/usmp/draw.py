"""A plan as a picture: buffers as boxes, steps from left to right, offsets upwards."""

from html import escape

from sterna.tir.usmp.plan import MemoryPlan

WIDTH, HEIGHT, MARGIN = 960, 480, 48


def draw_plan(plan: MemoryPlan) -> str:
    """The plan as SVG; resting on a box shows its buffer."""
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
            f'fill="hsl({number * 137 % 360}, 60%, 75%)" stroke="#333" stroke-width="0.5">'
            f"<title>{escape(label)}</title></rect>"
        )
    bound = MARGIN + HEIGHT - plan.lower_bound * up
    state = "proven smallest" if plan.proven else f"at least {plan.lower_bound} are needed"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {WIDTH + 2 * MARGIN} {HEIGHT + 2 * MARGIN}" '
            f'font-family="sans-serif" font-size="14">',
            f'<text x="{MARGIN}" y="{MARGIN - 16}">{plan.size} bytes, {state}</text>',
            *boxes,
            f'<line x1="{MARGIN}" x2="{MARGIN + WIDTH}" y1="{bound:.2f}" y2="{bound:.2f}" '
            f'stroke="#c00" stroke-dasharray="6 4"/>',
            f'<text x="{MARGIN}" y="{MARGIN + HEIGHT + 24}">step {begin}</text>',
            f'<text x="{MARGIN + WIDTH}" y="{MARGIN + HEIGHT + 24}" text-anchor="end">'
            f"step {end}</text>",
            "</svg>",
            "",
        ]
    )
