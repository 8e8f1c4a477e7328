"""DeepSpeed's configuration of a run: Tandem's, and the settings of ZeRO that the file of --deepspeed-config adds to it."""

import functools
import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

from common import apart, durable, workloads
from common.config import Settings, library_setting
from common.errors import UserError
from common.record.files import of_unique_keys

ZERO = "zero_optimization"
# Settings of ZeRO that the run decides: every rank has a whole share of one model, nothing is offloaded, and numbers go as they are.
DECIDED = (
    "stage", "offload_param", "offload_optimizer", "cpu_offload", "cpu_offload_param", "zenflow", "zero_hpz_partition_size",
    "zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights",
)  # fmt: skip


def of(settings: Settings, num_ranks: int) -> dict[str, Any]:
    """Returns DeepSpeed's configuration for resolved settings, with all other features off. `train_batch_size` is the global batch.

    Raises UserError for a file of --deepspeed-config that has what the run decides, or what DeepSpeed does not accept.
    """
    plan = workloads.batch_plan(settings, num_ranks)
    return {
        "train_batch_size": plan.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": settings.accumulate,
        "gradient_clipping": workloads.workload_of(settings).clip_norm or 0.0,
        "zero_allow_untested_optimizer": True,
        ZERO: {
            "stage": settings.zero_stage,
            # By default stage 3 does not shard parameters of up to 100,000 elements, which are most of a small model.
            "stage3_param_persistence_threshold": 0,
            # Copies of gradients into one buffer save large models from fragmented memory, and take 5 to 9 % of an epoch here.
            "contiguous_gradients": False,
            **library_setting(settings),
            **(of_file(settings.deepspeed_config) if settings.deepspeed_config else {}),
        },
    }


@functools.cache
def of_file(path: Path) -> dict[str, Any]:
    """Reads the settings of ZeRO in a file. Raises UserError where it has others, those in DECIDED, or what DeepSpeed does not accept."""
    option = f"--deepspeed-config {path}"
    try:
        content = json.loads(durable.read_bytes(path), object_pairs_hook=of_unique_keys)
    except OSError as problem:
        raise UserError(f"{option}: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{option} is no JSON ({problem})") from None
    if not isinstance(content, dict) or not isinstance(settings := content.pop(ZERO, {}), dict):
        raise UserError(f'{option} has no JSON object {{"{ZERO}": {{NAME: VALUE, …}}}}')
    if decided := [*content, *(f"{ZERO}.{name}" for name in settings if name in DECIDED)]:
        raise UserError(f"{option} has what the run decides: {', '.join(decided)}; leave these out")
    if problem := apart.call(option, problem_of, settings):
        raise UserError(f"DeepSpeed refuses {path}: {problem}")
    return settings


def problem_of(settings: dict[str, Any]) -> str | None:
    """Returns why DeepSpeed, where it is installed, does not accept settings of ZeRO; None otherwise."""
    if importlib.util.find_spec("deepspeed") is None:
        return None
    try:
        importlib.import_module("deepspeed.runtime.zero.config").DeepSpeedZeroConfig(**settings)
    # Of pydantic, and a TypeError of what is no name.
    except Exception as problem:
        return " ".join(str(problem).split()).partition(" For further information")[0]
    return None
