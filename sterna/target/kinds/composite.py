"""composite: several targets in one."""

from sterna.target.kind import Option, TargetKind

KIND = TargetKind(
    name="composite",
    device_type=1,
    options=(Option("devices", "targets"),),
)
