"""Cores of Arm's architecture, which run its 64-bit code or its 32-bit code."""

from sterna.isa.core import Core, Throughput, by_name

_WIDE = Throughput(multiply_adds=4, loads=3, issue_width=8)

CORES = by_name({
    # In order, with one pipe for vectors.
    "cortex-a53 cortex-a55 cortex-a510 cortex-a520":
        Core(32, 128, Throughput(multiply_adds=1, loads=1, issue_width=2)),
    "cortex-a57 cortex-a72 cortex-a73":
        Core(32, 256, Throughput(multiply_adds=2, loads=1, latency=5, issue_width=3)),
    "cortex-a75 cortex-a76 cortex-a77 cortex-a78": Core(64, 256),
    # LLVM takes this core to look far ahead and puts loads right before what waits for them. In the
    # order for ampere1 register tiles run at 95 to 97 % of the peak, in its own at 85 to 90 %.
    "neoverse-n1":
        Core(64, 1024, Throughput(streams_ahead=True, fetched_pixels=0.75), "ampere1", True),
    "neoverse-n2 cortex-a710 cortex-a715 cortex-a720": Core(64, 512, Throughput(issue_width=5)),
    "neoverse-v1 cortex-x1": Core(64, 1024, _WIDE),
    "neoverse-v2 neoverse-v3 cortex-x2 cortex-x3 cortex-x4": Core(64, 1024, _WIDE),
    "apple-m1 apple-m2 apple-m3 apple-m4": Core(128, 3072, _WIDE),
})
