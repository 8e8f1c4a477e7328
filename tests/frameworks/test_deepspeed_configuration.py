"""What the file of --deepspeed-config may have, and what DeepSpeed is given then."""

import json
from pathlib import Path

import pytest

from common import backends, workloads
from common.config import Settings
from frameworks.shared.deepspeed import configuration
from launch.run.plan import plan
from tests.support.mistakes import expect_refused, refused


def resolved(**settings):
    return workloads.resolve(Settings(**settings), 2)


def written(tmp_path, content):
    path = tmp_path / "ds_config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_settings_of_zero_reach_deepspeed_beside_those_of_the_run(tmp_path):
    of_file = {"reduce_bucket_size": 5000, "overlap_comm": True, "contiguous_gradients": True}
    path = written(tmp_path, {"zero_optimization": of_file})
    of_run, used = (configuration.of(resolved(zero_stage=2, deepspeed_config=file), 2) for file in (None, path))
    assert used == of_run | {"zero_optimization": of_run["zero_optimization"] | of_file}


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
    path, results = written(tmp_path, {"gradient_clipping": 1.0, "zero_optimization": {"stage": 2}}), tmp_path / "results"
    arguments = ("2", "--backends", "ddp,deepspeed_zero", "--workloads", "cnn", "--deepspeed-config", path, "--results", results)
    message = "ds_config.json has what the run decides: gradient_clipping, zero_optimization.stage; leave these out"
    expect_refused(message, "launch.matrix", *arguments)
    assert not results.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        ('{"a": 1, "a": 2}', "the key 'a' stands there twice"),
        ("{", "is no JSON (Expecting property name"),
        ([1], "has no JSON object"),
        ({"zero_optimization": True}, "has no JSON object"),
        ({"optimizer": {"type": "AdamW"}}, "decides: optimizer;"),
        ({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}, "decides: zero_optimization.offload_optimizer;"),
        (
            {"zero_optimization": {"reduce_bucket_sise": 5}},
            "DeepSpeed refuses {}: 1 validation error for DeepSpeedZeroConfig reduce_bucket_sise",
        ),
        ({"zero_optimization": {"reduce_bucket_size": "large"}}, "DeepSpeedZeroConfig reduce_bucket_size Input should be a valid integer"),
    ],
)
def test_a_file_with_anything_else_is_refused_in_one_line(content, message, tmp_path):
    path = written(tmp_path, content) if content else tmp_path / "missing.json"
    with refused(message.format(path)):
        configuration.of(resolved(deepspeed_config=path), 2)
