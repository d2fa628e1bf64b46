"""toy: kernels that the interpreter of loops runs, one step after the other."""

from sterna.target.kind import TargetKind

KIND = TargetKind(
    name="toy",
    device_type=1,
    default_keys=("toy", "cpu"),
    codegen="tests.target.toy.code_generator",
    schedules=("tests.target.toy.schedules", "sterna.schedule.default"),
    triple="host",
)
