"""Tags of operations: how one may be computed where it is read, as classic schedules ask."""

ELEMWISE = "elemwise"
BROADCAST = "broadcast"
INJECTIVE = "injective"
COMM_REDUCE = "comm_reduce"
COMM_REDUCE_IDX = "comm_reduce_idx"


def is_broadcast(tag: str) -> bool:
    """Whether an element is made of one element of each operand, or of a repeated one."""
    return tag in (ELEMWISE, BROADCAST) or tag.startswith((ELEMWISE, BROADCAST))


def is_injective(tag: str) -> bool:
    """Whether an element is made of few elements, so that it can be computed where it is read."""
    return is_broadcast(tag) or tag.startswith(INJECTIVE)
