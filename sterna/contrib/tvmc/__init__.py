"""A model from file to result, as classic programs and their command line call it.

    from tvm.driver import tvmc

    model = tvmc.load("model.onnx")
    tvmc.tune(model, target="llvm", tuning_records="records.db")
    package = tvmc.compile(model, target="llvm", package_path="model.tar")
    print(tvmc.run(package, device="cpu"))

and from the shell python -m sterna.contrib.tvmc compile, run, tune; see main.py.
"""

from sterna.contrib.tvmc.autotuner import tune_model as tune
from sterna.contrib.tvmc.compiler import compile_model as compile
from sterna.contrib.tvmc.frontends import load_model as load
from sterna.contrib.tvmc.model import TVMCException, TVMCModel, TVMCPackage, TVMCResult
from sterna.contrib.tvmc.runner import run_module as run
from sterna.support.classic import classic_names

__all__ = [
    "TVMCException", "TVMCModel", "TVMCPackage", "TVMCResult", "compile", "load", "run", "tune",
]

__getattr__ = classic_names(__name__)
