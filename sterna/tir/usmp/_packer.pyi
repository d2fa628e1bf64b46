def search_places(
    buffers: list[tuple[int, int, int]], capacity: int, work_limit: int
) -> tuple[list[int] | None, int | None, int]:
    """Places of (size, first, last) in an arena: (offsets, needed size if impossible, work)."""
