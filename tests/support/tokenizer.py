"""A small tokenizer.json of a real library's making."""

from pydoc_data.topics import topics


def write(path, num_tokens=300, **options):
    """Writes a byte-pair tokenizer with that many tokens, as GPT-2's, trained on a chapter of Python's documentation; returns the path.

    `options`: the separator among its tokens, and what a file may ask a reader for.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = options.pop("special_tokens", ["<pad>", "<|endoftext|>"])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=num_tokens, initial_alphabet=alphabet, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([topics["types"]], trainer)
    for setting, value in options.items():
        getattr(tokenizer, setting)(value)
    tokenizer.save(str(path))
    return path
