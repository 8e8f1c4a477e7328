"""Images in folders: their classes, the part of them that is read, and what is refused in one line."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from common.config import Settings
from common.data.datasets import loader
from common.model.resnet import ResNet50
from common.progress import no_progress
from common.workloads import WORKLOADS
from tests.support.mistakes import refusal
from tests.support.small_models import RESNET


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setitem(WORKLOADS, "resnet50", WORKLOADS["resnet50"]._replace(model=RESNET))


def write(path, width=64, height=48, colour=(10, 20, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), colour).save(path)


def read(folder, on_progress=no_progress):
    return loader(Settings(workload="resnet50", dataset="imagefolder", data_dir=folder))(on_progress)


@pytest.fixture
def folder(tmp_path):
    """Two classes of three images."""
    for number, name in enumerate(("cat/b.png", "cat/deep/a.PNG", "ant/c.jpg")):
        write(tmp_path / name, colour=(50 * number, 0, 255))
    return tmp_path


def test_classes_and_images_are_in_the_order_of_their_names(folder):
    (folder / "notes.txt").write_text("no class")
    (folder / ".hidden").mkdir()
    (folder / "cat" / "notes.txt").write_text("no image")
    data = read(folder)
    assert data.train.targets.tolist() == [0, 1, 1]
    assert (data.train.inputs.shape, data.train.inputs.dtype) == ((3, 48, 48, 3), np.uint8)
    assert (len(data.test.inputs), len(data.test.targets)) == (0, 0)
    # JPEG is not exact.
    np.testing.assert_allclose(data.train.inputs[:, 24, 24].astype(int), [(100, 0, 255), (0, 0, 255), (50, 0, 255)], atol=3)


def test_the_folder_train_is_taken_where_there_is_one(folder, tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    (root / "train").symlink_to(folder)
    (root / "val" / "x").mkdir(parents=True)
    assert read(root).digest == read(folder).digest


@pytest.mark.parametrize(("width", "height"), [(256, 256), (256, 320), (400, 256), (500, 375), (30, 40)])
def test_an_images_part_and_size_are_torchvisions(width, height, tmp_path, monkeypatch):
    monkeypatch.setitem(WORKLOADS, "resnet50", WORKLOADS["resnet50"]._replace(model=ResNet50()))
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    image = Image.fromarray(np.stack([across, down, 255 - across], axis=-1).astype(np.uint8))
    (tmp_path / "a").mkdir()
    image.save(tmp_path / "a" / "one.png")
    # Resize(256) and CenterCrop(224).
    scale = 256 / min(width, height)
    larger = image.resize((int(width * scale), int(height * scale)), Image.Resampling.BILINEAR)
    left, top = (larger.width - 224) // 2, (larger.height - 224) // 2
    expected = np.asarray(larger.crop((left, top, left + 224, top + 224)))
    np.testing.assert_allclose(read(tmp_path).train.inputs[0].astype(int), expected.astype(int), atol=2)


def test_grey_and_transparent_images_have_three_colours(tmp_path):
    (tmp_path / "a").mkdir()
    Image.new("L", (50, 50), 77).save(tmp_path / "a" / "grey.png")
    Image.new("RGBA", (50, 50), (1, 2, 3, 0)).save(tmp_path / "a" / "transparent.png")
    assert read(tmp_path).train.inputs[:, 0, 0].tolist() == [[77] * 3, [1, 2, 3]]


@pytest.mark.parametrize("end", ["png", "tif", "pgm"])
def test_an_image_of_16_bits_is_not_white(end, tmp_path):
    (tmp_path / "a").mkdir()
    Image.fromarray(np.full((50, 50), 77 * 257, np.uint16)).save(tmp_path / "a" / f"grey.{end}")
    assert read(tmp_path).train.inputs[0, 0, 0].tolist() == [77] * 3


@pytest.mark.parametrize(("kind", "mode"), [(np.int32, "I"), (np.float32, "F")])
def test_an_image_of_which_no_value_is_said_to_be_white_is_refused(kind, mode, tmp_path):
    (tmp_path / "a").mkdir()
    Image.fromarray(np.full((50, 50), 77, kind)).save(tmp_path / "a" / "grey.tif")
    assert f"a/grey.tif cannot be read as an image (its pixels are numbers of 32 bits, mode {mode}, of which" in refusal(read, tmp_path)


def test_hidden_files_are_no_images(folder):
    plain = read(folder).digest
    for name in ("cat/._b.png", "cat/.ipynb_checkpoints/b-checkpoint.png", "._cat", ".cat/b.png", "cat/deep/.a.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"\0\5\26\7" + bytes(4092))
    assert read(folder).digest == plain


def test_links_are_followed_as_torchvision_does(folder, tmp_path_factory):
    linked = tmp_path_factory.mktemp("linked")
    (linked / "ant").symlink_to(folder / "ant")
    (linked / "cat").mkdir()
    (linked / "cat" / "b.png").symlink_to(folder / "cat" / "b.png")
    (linked / "cat" / "deep").symlink_to(folder / "cat" / "deep")
    assert read(linked).digest == read(folder).digest


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("cat/x.png", "annex/x.png", "cat/x.png is a link to annex/x.png, which is not there"),
        ("cat/deeper", "annex", "cat/deeper is a link to annex, which is not there"),
        ("dog", "annex", "dog is a link to annex, which is not there"),
        ("dog", "dog", "dog is a link to dog, which is not there"),
        ("cat/up", "..", "cat/up is a link to a folder that it is in; take it away"),
        ("cat/here", ".", "cat/here is a link to a folder that it is in; take it away"),
    ],
)
def test_links_that_lead_nowhere_or_round_are_named(name, target, message, folder):
    (folder / name).symlink_to(target)
    assert message in refusal(read, folder)


def test_the_digest_is_that_of_pixels_and_classes_and_each_image_is_progress(folder):
    progress = []
    plain = read(folder, lambda *of_all: progress.append(of_all)).digest
    assert progress == [(1, 3), (2, 3), (3, 3)]
    (folder / "ant").rename(folder / "bat")
    assert read(folder).digest == plain
    (folder / "bat").rename(folder / "dog")
    classes = read(folder).digest
    write(folder / "cat" / "b.png", colour=(1, 0, 255))
    assert len({plain, classes, read(folder).digest}) == 3


def cut(path, share):
    """Writes an image, of whose file a share is left."""
    write(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "has no folders; give the one with one folder of images per class"),
        (lambda folder: (folder / "empty").mkdir(), "empty has no image (.jpg, .jpeg, "),
        (lambda folder: [write(folder / f"class{number}" / "a.png") for number in range(11)], "has 11 classes; the model has 10"),
        (lambda folder: cut(folder / "a" / "empty.png", 0), "empty.png cannot be read as an image ("),
        (lambda folder: cut(folder / "a" / "cut.jpg", 2 / 3), "cut.jpg cannot be read as an image ("),
        (lambda folder: cut(folder / "a" / "cut.png", 2 / 3), "cut.png cannot be read as an image ("),
    ],
)
def test_a_folder_without_whole_images_is_refused(make, message, tmp_path):
    make(tmp_path)
    assert message in refusal(read, tmp_path)


def test_more_images_than_fit_into_memory_are_refused_before_any_is_read(folder, monkeypatch):
    import psutil

    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=3 * 48 * 48 * 3 - 1))
    text = refusal(loader, Settings(workload="resnet50", dataset="imagefolder", data_dir=folder))
    assert text.endswith("takes 0.0 GiB on each of 1 ranks, and 0.0 GiB are available; give a folder with fewer images")
