"""Data that is on every machine with Python: random digits, and Python's documentation as stories."""

import numpy as np

NUM_TEST = 16


def digits(folder, num_samples):
    """The arguments that read so many random images, as MNIST has them."""
    path = folder / f"digits-{num_samples}"
    if not path.exists():
        path.mkdir()
        draw, arrays = np.random.default_rng(0).integers, {}
        for part, num in (("train", num_samples), ("test", NUM_TEST)):
            arrays[f"x_{part}"] = draw(256, size=(num, 28, 28), dtype=np.uint8)
            arrays[f"y_{part}"] = draw(10, size=num, dtype=np.uint8)
        np.savez(path / "mnist.npz", **arrays)
    return "--dataset", "mnist", "--data-dir", path


def stories(folder, num_samples, context):
    """The arguments that read so many sequences of bytes, over and over the same text where it is too short."""
    from pydoc_data.topics import topics

    path = folder / f"stories-{num_samples}-{context}"
    if not path.exists():
        path.mkdir()
        text = "\n".join(topics[key] for key in sorted(topics)).encode("ascii", "replace")
        num_bytes = num_samples * context + 1
        (path / "train.txt").write_bytes((text * (num_bytes // len(text) + 1))[:num_bytes])
        (path / "valid.txt").write_bytes(text[-NUM_TEST * context - 1 :])
    return "--dataset", "tinystories", "--data-dir", path
