"""The Keras backend never runs under Keras 3, where Horovod's optimizer does not all-reduce."""

import pytest

from tests.support.running import BIN, completed

# Each starts TensorFlow, which takes seconds.
pytestmark = pytest.mark.matrix


def run(*lines):
    program = "\n".join(
        ["import os", *lines, "import frameworks.horovod_keras as backend", "backend.keras.expect_keras_2()", "print('Keras 2')"]
    )
    done = completed(BIN / "python", "-c", program)
    return done.returncode, done.stdout + done.stderr


def test_the_backend_takes_keras_2_whatever_the_environment_says():
    status, output = run("os.environ['TF_USE_LEGACY_KERAS'] = '0'")
    assert status == 0, output
    assert "Keras 2" in output


def test_keras_3_is_refused_where_tensorflow_was_imported_before():
    status, output = run("import tensorflow", "tensorflow.keras.Model")
    assert status == 1
    assert "Horovod never all-reduces under Keras 3" in output
