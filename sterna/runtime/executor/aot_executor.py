"""The AOT executor: networks that are one function."""

from sterna.runtime.graph_executor import GraphModule


class AotModule(GraphModule):
    """A network that runs: set inputs, run, get outputs. AotModule(lib["default"](dev))"""

    def get_input_name(self, index: int) -> str:
        """The name of an input that is no parameter."""
        shapes, _ = self.get_input_info()
        names = list(shapes)
        if not 0 <= index < len(names):
            raise IndexError(f"there are {len(names)} inputs; {index} is none of them")
        return names[index]
