"""The commands, each of which is a file of this folder, and what each is for."""

COMMANDS = {
    "compile": "compile a model to a file",
    "run": "run a model on arrays, pictures or random numbers",
    "bench": "time a model, beside ONNX Runtime where it is installed",
    "profile": "show what each operator of a model takes",
    "tune": "search faster kernels for a model on this machine, and keep them",
    "quantize": "make a float ONNX model one of 8-bit integers, by samples of its inputs",
    "inspect": "show a model: its operators, its code at any stage, a drawing",
    "micro": "make a firmware project of a model, build it, and show what memory it takes",
    "targets": "list what can be compiled for, and what is missing for the rest",
    "key": "make a pair of keys, to sign compiled files and to trust them",
    "rpc-server": "compile the RPC server, a program without Python, for a machine",
    "demo": "compile a small classifier and let it read digits",
}
