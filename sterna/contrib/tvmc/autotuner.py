"""Search for faster kernels, for tvmc."""

from collections.abc import Mapping
from typing import Any

from sterna.contrib.tvmc.compiler import target_with
from sterna.contrib.tvmc.model import TVMCException, TVMCModel
from sterna.ir.transform import PassContext
from sterna.target import Target
from sterna.tune import Budget, TuningDatabase
from sterna.tune import tune as tune_network
from sterna.tune.measure import RemoteDevice

# How the classic tuners search and measure; the one search here decides that by itself.
NO_MEANING = frozenset({
    "early_stopping", "enable_autoscheduler", "hardware_params", "include_simple_tasks",
    "log_estimated_latency", "min_repeat_ms", "number", "parallel", "repeat", "timeout",
    "tuner",
})


def tune_model(
    tvmc_model: TVMCModel, target: str | Target, tuning_records: str | None = None,
    prior_records: str | None = None, trials: int = 64, minutes: float = 10.0,
    hostname: str | None = None, port: int | str | None = 9090, rpc_key: str | None = None,
    additional_target_options: Mapping[str, Mapping[str, Any]] | None = None,
    target_host: str | Target | None = None, **classic: Any,
) -> str:
    """Search faster kernels on this machine, or on a device that a tracker lends.

    Gives the file of what was found. trials: for each layer. prior_records: records that the search
    begins with, and adds to where tuning_records names no other file. How the classic tuners search
    (tuner, early_stopping, number, repeat, ...) has no meaning here.
    """
    if unknown := sorted(set(classic) - NO_MEANING):
        raise TVMCException(f"tune has no option {', '.join(unknown)}")
    device = None
    if rpc_key is not None:
        if hostname is None:
            raise TVMCException(f"rpc_key {rpc_key!r} is lent by a tracker; give its hostname")
        device = RemoteDevice(hostname, int(port or 9090), rpc_key)
    records = tuning_records or prior_records or tvmc_model.default_tuning_records_path()
    wanted = target_with(target, additional_target_options or {}, target_host)
    database = TuningDatabase(records)
    if prior_records is not None and prior_records != records:
        database.take_over(TuningDatabase(prior_records, read_only=True), wanted)
    with PassContext(3):
        tune_network(
            tvmc_model.mod, tvmc_model.params, wanted, database,
            budget=Budget(trials, seconds=minutes * 60), device=device,
        )
    return records
