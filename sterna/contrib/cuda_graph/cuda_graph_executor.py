"""The graph executor on CUDA, under its classic names.

Every executor on a CUDA device captures its runs and replays them; this one also waits for them.
"""

from collections.abc import Sequence
from typing import Any

from sterna.runtime import Device, Module, graph_executor
from sterna.runtime.device import DEVICE_TYPES
from sterna.runtime.graph_executor import GraphModule

__all__ = ["GraphModuleCudaGraph", "create"]


class GraphModuleCudaGraph(GraphModule):
    """A graph executor on a CUDA device."""

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self._device = self.get_output(0).device if self.get_num_outputs() else Device(2, 0)

    def capture_cuda_graph(self) -> None:
        """Capture what run launches; runs do so by themselves when the same arrays come again."""
        for _ in range(2):
            self._run()
        self._device.sync()

    def run_cuda_graph(self) -> None:
        """Run what was captured, and wait for it."""
        self._run()
        self._device.sync()

    def run(self, **input_dict: Any) -> None:
        """Run the graph, after setting inputs by name, and wait for it."""
        super().run(**input_dict)
        self._device.sync()


def create(
    graph_json_str: str, libmod: Module, device: Device | Sequence[Device]
) -> GraphModuleCudaGraph:
    """An executor of a graph whose functions are in a module, on a CUDA device."""
    devices = [device] if isinstance(device, Device) else list(device)
    if any(each.device_type != DEVICE_TYPES["cuda"] for each in devices):
        raise ValueError(f"CUDA graphs run on CUDA devices, not on {devices}")
    return GraphModuleCudaGraph(graph_executor.create(graph_json_str, libmod, devices).module)
