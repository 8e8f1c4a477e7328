"""Small models of kinds that Tandem has no family of, written as a user would, pass the checks of a file."""

import pytest

from common.model import user_model
from common.model.user_model import UserModel
from tests.support.user_models import BEGINNING, SOUND


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_models_of_many_kinds_pass_the_checks_and_their_operations_are_counted(name, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(BEGINNING + SOUND[name])
    model = UserModel(str(path), None)
    user_model.check(model)
    assert model.training_flops() > 0
