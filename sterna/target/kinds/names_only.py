"""The kinds that are known by name and have no options of their own."""

from sterna.target.kind import TargetKind

KINDS = [
    TargetKind(name="stackvm", device_type=1),
    TargetKind(name="hybrid", device_type=1),
    TargetKind(name="test", device_type=1),
    TargetKind(name="ccompiler", device_type=1),
    TargetKind(name="ext_dev", device_type=12),
    TargetKind(name="sdaccel", device_type=4, default_keys=("sdaccel", "hls")),
    TargetKind(name="aocl", device_type=4, default_keys=("aocl", "hls")),
    TargetKind(name="aocl_sw_emu", device_type=4, default_keys=("aocl", "hls")),
]
