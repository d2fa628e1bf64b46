"""The settings of the passes over graphs: keys of PassContext's config."""

from sterna.ir.transform import register_config

register_config("relay.FuseOps.max_depth", int, 256, "the most operators in one kernel")
register_config(
    "relay.ToMixedPrecision.keep_orig_output_dtype", bool, False,
    "whether results get back the types that they had before ToMixedPrecision",
)
register_config(
    "relay.ToMixedPrecision.follow_weights", bool, False,
    "whether ToMixedPrecision narrows what reads weights alone, such as an embedding",
)
register_config(
    "relay.fallback_device_type", int, 0,
    "DLPack's number of the device for what no annotation says, in a build for several targets; 0: "
    "the GPU",
)
register_config(
    "relay.weights.max_growth", float, 0.0,
    "how many times larger all weights together may become by packing them; 0: no limit",
)
register_config(
    "relay.Winograd.max_growth", int, 8,
    "how many times larger weights may become by Winograd's way to convolve; 0: it is not used, "
    "as below level 2 unless this is set; at level 2 that is 4",
)
for _face, _where in (("auto_scheduler", "ApplyHistoryBest"), ("meta_schedule", "Database")):
    register_config(
        f"relay.backend.use_{_face}", bool, False,
        f"taken as programs give it: builds inside of {_face}'s {_where} use it by themselves",
    )
for _name, _why in (
    ("relay.FuseOps.link_params", "constants stay in the kernels that they are folded into"),
    ("relay.backend.disable_compile_engine_cache", "kernels are kept by what they compute"),
    ("relay.frontend.fill_span", "expressions know the nodes that they come from"),
    ("relay.remove_standalone_reshapes.enable", "reshapes are views and cost nothing"),
):
    register_config(_name, bool, False, f"taken as programs give it: {_why}")
