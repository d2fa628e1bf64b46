"""What is computed when it is first asked for is computed by one thread."""

import threading
import time

from sterna.support.once import computed_once


class Made:
    count = 0

    @computed_once
    def value(self) -> object:
        """A thing."""
        self.count += 1
        time.sleep(0.01)
        return object()


def test_threads_that_ask_at_once_get_the_same_thing() -> None:
    made, found = Made(), []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        found.append(made.value)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.count == 1 and len(found) == 8 and len(set(map(id, found))) == 1
    assert Made.value.__doc__ == "A thing." and Made().value is not made.value
