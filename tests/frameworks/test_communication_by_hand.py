"""Communication by hand may be several exchanges of any size: all are left out, and the bytes of each are counted."""

import torch

from frameworks.shared.pytorch import process_group


class TwoExchanges:
    """A trainer that all-reduces 12 bytes after the backward pass, and 8 and 4 after a step."""

    device = torch.device("cpu")

    def __init__(self):
        self.log = []
        self.all_reduce = lambda tensor: self.log.append(tensor.numel())

    def exchange_gradients(self, scale):
        self.all_reduce(torch.ones(3) * scale)

    def exchange_rest(self):
        for size in (2, 1):
            self.all_reduce(torch.ones(size))

    def train(self):
        self.exchange_gradients(scale=2)
        self.exchange_rest()


def test_every_exchange_is_counted_by_its_own_bytes_and_left_out():
    trainer = TwoExchanges()
    communication = process_group.communication_by_hand(trainer, "exchange_gradients", "exchange_rest", owner=trainer)
    assert communication.profiled(trainer.train).operations == {"all_reduce": (3, 24)}
    assert trainer.log == [3, 2, 1]
    with communication.without_communication():
        assert communication.profiled(trainer.train).operations == {}
    assert trainer.log == [3, 2, 1]
    trainer.train()
    assert len(trainer.log) == 6
    communication.all_reduce(16)()
    assert trainer.log[-1] == 4
