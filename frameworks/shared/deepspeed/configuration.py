"""DeepSpeed's configuration of a run: Tandem's, and what the file of --deepspeed-config adds to it, as DeepSpeed itself accepts it.

The run decides the keys in DECIDED. A file may have these off, or with "auto". All other keys are the file's.
"""

import functools
import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, final

from common import apart, durable, workloads
from common.bounds import FROM_1
from common.command_line import shortened
from common.config import Settings, library_setting
from common.errors import UserError
from common.record.files import of_unique_keys

# The keys that have numbers of samples, and the number of micro-batches.
SIZES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
SAME_TRAINING = "every backend trains the same samples and layers"
NO_OFFLOAD = "nothing is offloaded"
ONE_MODEL = "all ranks train one model"
EXCHANGED_AS_THEY_ARE = "numbers are exchanged as they are"
# Keys, and with them those below, that the run decides, and by what.
DECIDED = {
    "train_batch_size": "--batch-size",
    "train_micro_batch_size_per_gpu": "--batch-size",
    "gradient_accumulation_steps": "--accumulate",
    "optimizer": "--optimizer, --learning-rate, --momentum",
    "zero_allow_untested_optimizer": "the optimizer is PyTorch's",
    "zero_force_ds_cpu_optimizer": "the optimizer is PyTorch's",
    "scheduler": "--schedule, --warmup-epochs",
    "gradient_clipping": "CLIP_NORM of a --model",
    "gradient_allreduce_op": "gradients are averaged",
    **dict.fromkeys(("fp16", "bf16", "amp", "torch_autocast", "data_types"), "--precision"),
    "communication_data_type": EXCHANGED_AS_THEY_ARE,
    "zero_optimization.stage": "the variant, such as deepspeed_zero@3",
    **dict.fromkeys(
        (f"zero_optimization.{name}" for name in ("offload_param", "offload_optimizer", "cpu_offload", "cpu_offload_param", "zenflow")),
        NO_OFFLOAD,
    ),
    **dict.fromkeys(
        (f"zero_optimization.zero_{name}" for name in ("quantized_weights", "quantized_gradients", "quantized_nontrainable_weights")),
        EXCHANGED_AS_THEY_ARE,
    ),
    "zero_optimization.zero_hpz_partition_size": ONE_MODEL,
    **dict.fromkeys(("tensor_parallel", "sequence_parallel_size", "expert_parallel", "pipeline", "elasticity"), ONE_MODEL),
    "activation_checkpointing": "--recompute",
    "compile": SAME_TRAINING,
    **dict.fromkeys(("checkpoint", "nebula", "datastates_ckpt"), "--checkpoint-dir"),
    **dict.fromkeys(
        (
            "curriculum_learning", "data_efficiency", "progressive_layer_drop", "compression_training", "weight_quantization",
            "quantize_training", "sparse_attention", "sparse_gradients", "eigenvalue", "hybrid_engine", "autotuning",
        ),
        SAME_TRAINING,
    ),
}  # fmt: skip
# The types of keys whose default is None.
UNTYPED: dict[str, Any] = {
    "steps_per_print": Annotated[int, FROM_1],
    "vocabulary_size": Annotated[int, FROM_1],
    "log_level": Literal["debug", "info", "warning", "error", "critical"],
}
# A value of HuggingFace's, which leaves the choice to the program.
AUTO = "auto"


def of(settings: Settings, num_ranks: int) -> dict[str, Any]:
    """Returns DeepSpeed's configuration for resolved settings, with the file of --deepspeed-config.

    Raises UserError for a file that is no JSON object, for what it sets of what the run decides, and for what DeepSpeed does not accept.
    """
    configuration = of_run(settings, num_ranks)
    if settings.deepspeed_config is None:
        return configuration
    content = read(settings.deepspeed_config)
    if conflicting := conflicts(content):
        raise UserError(f"{settings.deepspeed_config} has what the run decides: {', '.join(conflicting)}; leave these out")
    configuration = merged(configuration, content)
    # Sizes are the run's, and DeepSpeed compares them with the number of ranks.
    of_file = {name: value for name, value in configuration.items() if name not in SIZES} | {SIZES[1]: 1}
    if problem := _problem(settings.deepspeed_config, json.dumps(of_file)):
        raise UserError(f"DeepSpeed refuses {settings.deepspeed_config}: {problem}")
    return configuration


@functools.cache
def _problem(path: Path, configuration: str) -> str | None:
    return apart.call(f"--deepspeed-config {path}", problem_of, configuration)


@final
class Read(dict[str, Any]):
    """A dictionary with the keys that were looked for in it, in their order."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.keys_read: list[Any] = []

    def __contains__(self, key: Any) -> bool:
        self.keys_read.append(key)
        return super().__contains__(key)

    def __getitem__(self, key: Any) -> Any:
        self.keys_read.append(key)
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self.keys_read.append(key)
        value = super().get(key, default)
        kind = UNTYPED.get(key, type(default))
        if value is not default and kind in (*UNTYPED.values(), bool, int, float):
            # Imported here, since other backends' ranks need not have it. DeepSpeed looks at no type itself.
            from pydantic import TypeAdapter

            TypeAdapter(kind).validate_python(value, strict=True)
        return value


def problem_of(configuration: str) -> str | None:
    """Returns why DeepSpeed, where it is installed, does not accept a configuration, or the keys that it does not know; None otherwise."""
    if importlib.util.find_spec("deepspeed") is None:
        return None
    content = Read(json.loads(configuration))
    try:
        importlib.import_module("deepspeed").DeepSpeedConfig(content)
    except Exception as problem:
        reason = " ".join(str(problem).split()).partition(" For further information")[0]
        return f"{content.keys_read[-1]}: {reason}"
    unknown = [name for name in content if name not in content.keys_read]
    return f"it does not know {', '.join(unknown)}" if unknown else None


def of_run(settings: Settings, num_ranks: int) -> dict[str, Any]:
    """Returns Tandem's configuration, with all other features off. `train_batch_size` is the global batch."""
    plan = workloads.batch_plan(settings, num_ranks)
    return {
        "train_batch_size": plan.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": settings.accumulate,
        "gradient_clipping": workloads.workload_of(settings).clip_norm or 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": settings.zero_stage,
            # By default stage 3 does not shard parameters of up to 100,000 elements, which are most of a small model.
            "stage3_param_persistence_threshold": 0,
            # Copies of gradients into one buffer save large models from fragmented memory, and take 5 to 9 % of an epoch here.
            "contiguous_gradients": False,
            **library_setting(settings),
        },
    }


def read(path: Path) -> dict[str, Any]:
    """Reads the JSON object in a file. Raises UserError where there is none."""
    try:
        content = json.loads(durable.read_bytes(path), object_pairs_hook=of_unique_keys)
    except OSError as problem:
        raise UserError(f"--deepspeed-config {path}: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise UserError(f"--deepspeed-config {path} is no JSON ({problem})") from None
    if not isinstance(content, dict):
        raise UserError(f"--deepspeed-config {path} has no JSON object")
    return content


def conflicts(content: Mapping[str, Any]) -> list[str]:
    """Describes what a file sets of what the run decides, and by what this is decided: of each key in DECIDED the first."""
    first_of: dict[str, str] = {}
    for key, value in leaves(content):
        decided = decided_key(key)
        if decided and not (value is None or value is False or value in ("none", AUTO)):
            first_of.setdefault(decided, f"{key} {shortened(json.dumps(value), 40)} ({DECIDED[decided]})")
    return list(first_of.values())


def merged(configuration: Mapping[str, Any], content: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Returns a configuration with the keys of a file that the run does not decide."""
    result = dict(configuration)
    for name, value in content.items():
        key = f"{path}{name}"
        if value == AUTO or decided_key(key):
            continue
        if isinstance(result.get(name), dict) and not isinstance(value, dict):
            raise UserError(f"--deepspeed-config has {key} {shortened(json.dumps(value))}; give an object, as DeepSpeed takes now")
        result[name] = merged(result.get(name) or {}, value, f"{key}.") if isinstance(value, dict) else value
    return result


def decided_key(key: str) -> str | None:
    """Returns the key in DECIDED that a key is, or is below; None where the run does not decide it."""
    return next((decided for decided in DECIDED if key == decided or key.startswith(f"{decided}.")), None)


def leaves(content: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values of nested objects with their keys, joined by dots; none of a feature that is off."""
    for name, value in content.items():
        if not isinstance(value, dict):
            yield f"{path}{name}", value
        elif value.get("enabled", True) not in (False, AUTO) and value.get("device") != "none":
            yield from leaves(value, f"{path}{name}.")
