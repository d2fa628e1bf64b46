"""A picture of a search: what the network takes after each round, beside its untuned time."""

from collections.abc import Sequence

from sterna.tune.search import Progress

WIDTH, HEIGHT, EDGE = 720, 320, 48


def draw_history(history: Sequence[Progress]) -> str:
    """An SVG: seconds of searching to the right, the share of the untuned time upwards."""
    times = [0.0, *(at.seconds for at in history)]
    shares = [1.0, *(at.ratio for at in history)]
    lowest, last = min(0.9, min(shares) - 0.02), max(times[-1], 1.0)

    def place(seconds: float, share: float) -> str:
        right = EDGE + seconds / last * (WIDTH - 2 * EDGE)
        down = EDGE + (1.0 - share) / (1.0 - lowest) * (HEIGHT - 2 * EDGE)
        return f"{right:.1f},{down:.1f}"

    steps = [place(0.0, 1.0)]
    for index in range(1, len(times)):
        steps += [place(times[index], shares[index - 1]), place(times[index], shares[index])]
    floor, left = HEIGHT - EDGE, EDGE
    text = "font-family='sans-serif' font-size='12' fill='#333'"
    return "\n".join([
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT}'>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>",
        f"<path d='M{left},{EDGE} V{floor} H{WIDTH - EDGE}' stroke='#999' fill='none'/>",
        f"<text x='4' y='{EDGE + 4}' {text}>100 %</text>",
        f"<text x='4' y='{floor + 4}' {text}>{lowest:.0%}</text>",
        f"<text x='{WIDTH - EDGE - 30}' y='{floor + 18}' {text}>{last:.0f} s</text>",
        f"<text x='{left}' y='24' {text}>time of the network, of its untuned time: "
        f"{shares[-1]:.1%} after {len(history)} rounds</text>",
        f"<polyline points='{' '.join(steps)}' stroke='#1f6feb' stroke-width='2' fill='none'/>",
        "</svg>",
    ]) + "\n"
