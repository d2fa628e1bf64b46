"""OpenCL C, for whatever compiler the device's driver has."""

from sterna.codegen.opencl.module import generate

__all__ = ["generate"]
