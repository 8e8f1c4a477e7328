"""What the file of --deepspeed-config may have, and what DeepSpeed is given then."""

import contextlib
import json
from pathlib import Path

import pytest

from common import backends, workloads
from common.config import Settings
from frameworks.shared.deepspeed import configuration
from launch.run.plan import plan
from tests.support.mistakes import expect_refused, refusal, refused

# The settings of ALCF's hands-on workshop for DeepSpeed (learningFrameworks/distributedDeepLearning/DeepSpeed/ds_config.json).
OF_WORKSHOP = {
    "train_batch_size": 512,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.001, "warmup_num_steps": 1000}},
    "gradient_clipping": 1.0,
    "fp16": {"enabled": True, "loss_scale": 0, "loss_scale_window": 500, "hysteresis": 2, "min_loss_scale": 1, "initial_scale_power": 15},
    "steps_per_print": 2000,
    "prescale_gradients": False,
    "wall_clock_breakdown": False,
    "zero_optimization": {
        "stage": 0, "allgather_partitions": True, "reduce_scatter": True, "allgather_bucket_size": 50_000_000,
        "reduce_bucket_size": 50_000_000, "overlap_comm": True, "contiguous_gradients": True, "cpu_offload": False,
    },
}  # fmt: skip
# Of these the run decides.
DECIDED_THERE = [
    "train_batch_size", "optimizer.type", "scheduler.type", "gradient_clipping", "fp16.enabled", "zero_optimization.stage",
]  # fmt: skip


def resolved(**settings):
    return workloads.resolve(Settings(**settings), 2)


def written(tmp_path, content):
    path = tmp_path / "ds_config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (OF_WORKSHOP, DECIDED_THERE),
        ({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2}, [
            "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
        ]),
        ({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}, ["optimizer.type"]),
        ({"fp16": {"enabled": "auto", "loss_scale_window": 1000}, "bf16": {"enabled": "auto"}, "gradient_clipping": "auto"}, []),
        ({"zero_optimization": {"offload_param": {"device": "none", "pin_memory": True}, "zero_quantized_weights": False}}, []),
        ({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}, ["zero_optimization.offload_optimizer.device"]),
        ({"zero_optimization": {"zero_quantized_gradients": True}}, ["zero_optimization.zero_quantized_gradients"]),
        ({"scheduler": None, "amp": {"enabled": False}}, []),
        ({"communication_data_type": "fp16"}, ["communication_data_type"]),
    ],
)  # fmt: skip
def test_what_the_run_decides_is_found_by_its_key_unless_it_is_off(content, keys):
    assert [conflict.split()[0] for conflict in configuration.conflicts(content)] == keys


def test_a_tutorials_file_is_refused_in_one_line_with_what_decides_each_key(tmp_path):
    path = written(tmp_path, OF_WORKSHOP)
    message = refusal(configuration.of, resolved(deepspeed_config=path), 2)
    assert message.startswith(f"{path} has what the run decides: train_batch_size 512 (--batch-size), ")
    assert 'scheduler.type "WarmupLR" (--schedule, --warmup-epochs)' in message
    assert message.endswith("zero_optimization.stage 0 (the variant, such as deepspeed_zero@3); leave these out")


def test_what_the_run_does_not_decide_of_a_tutorials_file_reaches_deepspeed(tmp_path):
    content = {name: value for name, value in OF_WORKSHOP.items() if not configuration.decided_key(name)}
    content["zero_optimization"] = {name: value for name, value in content["zero_optimization"].items() if name != "stage"}
    run = resolved(deepspeed_config=written(tmp_path, content), batch_size=32, zero_stage=0)
    used = configuration.of(run, 2)
    without_file = configuration.of_run(run, 2)
    of_file = {"allgather_partitions", "reduce_scatter", "allgather_bucket_size", "reduce_bucket_size", "overlap_comm"}
    sharding = {name: OF_WORKSHOP["zero_optimization"][name] for name in (*of_file, "contiguous_gradients")}
    outputs = {name: OF_WORKSHOP[name] for name in ("steps_per_print", "prescale_gradients", "wall_clock_breakdown")}
    assert used == without_file | outputs | {"zero_optimization": without_file["zero_optimization"] | sharding}


def test_without_a_file_and_with_an_empty_one_the_configuration_is_tandems(tmp_path):
    without_file = configuration.of(resolved(), 2)
    assert without_file == configuration.of_run(resolved(), 2)
    for content in ({}, {"train_batch_size": "auto", "zero_optimization": {"reduce_bucket_size": "auto"}}):
        assert configuration.of(resolved(deepspeed_config=written(tmp_path, content)), 2) == without_file


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' stands there twice"),
        ("{", "is no JSON (Expecting property name"),
        ("[1]", "has no JSON object"),
        (None, "No such file or directory"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(content, message, tmp_path):
    path = written(tmp_path, content) if content else tmp_path / "missing.json"
    with refused(message):
        configuration.of(resolved(deepspeed_config=path), 2)


def test_other_backends_do_not_get_the_file_and_refuse_it_alone():
    path = Path("ds_config.json")
    jobs = plan(["ddp", "deepspeed_zero", "deepspeed_zero@3"], ["cnn"], [2], 1, None, Settings(deepspeed_config=path))
    assert {job.backend: job.settings.deepspeed_config for job in jobs} == {
        "ddp": None, "deepspeed_zero": path, "deepspeed_zero@3": path,
    }  # fmt: skip
    with refused("--deepspeed-config is for deepspeed_zero, not for ddp; leave it out"):
        backends.name_of("ddp", Settings(deepspeed_config=path))
    with refused("--deepspeed-config is for deepspeed_zero, and --backends has none of these; leave it out"):
        backends.expect_had(["single", "ddp"], Settings(deepspeed_config=path))


def test_the_matrix_refuses_a_file_with_what_the_run_decides_before_its_first_run(tmp_path):
    path, results = written(tmp_path, {"gradient_clipping": 1.0}), tmp_path / "results"
    arguments = ("2", "--backends", "ddp,deepspeed_zero", "--workloads", "cnn", "--deepspeed-config", path, "--results", results)
    expect_refused(
        "ds_config.json has what the run decides: gradient_clipping 1.0 (CLIP_NORM of a --model); ",
        "launch.matrix",
        *arguments,
    )
    assert not results.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"zero_optimization": {"reduce_bucket_size": 5}, "steps_per_print": 5, "wall_clock_breakdown": False}, None),
        ({"zero_optimization": {"reduce_bucket_sise": 5}}, "refuses {}: zero_optimization: "),
        ({"zero_optimization": {"reduce_bucket_size": "large"}}, "refuses {}: zero_optimization: "),
        ({"zero_optimzation": {"overlap_comm": True}}, "refuses {}: it does not know zero_optimzation"),
        ({"zero_optimization": True}, "--deepspeed-config has zero_optimization true; give an object"),
        ({"flops_profiler": 5}, "refuses {}: flops_profiler"),
        ({"steps_per_print": "x"}, "refuses {}: steps_per_print: "),
        ({"steps_per_print": 0}, "refuses {}: steps_per_print: "),
        ({"gradient_predivide_factor": 2, "log_level": "info"}, None),
        ({"prescale_gradients": "yes"}, "refuses {}: prescale_gradients: "),
        ({"log_level": "loud"}, "refuses {}: log_level: "),
    ],
)
def test_deepspeed_is_asked_before_the_start_whether_it_accepts_a_file(content, reason, tmp_path):
    run = resolved(deepspeed_config=written(tmp_path, content))
    with refused(reason.format(run.deepspeed_config)) if reason else contextlib.nullcontext():
        configuration.of(run, 2)
