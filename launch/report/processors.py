"""Names of processors: the text that the hardware gives often says neither their generation nor that they are virtual."""

from typing import NamedTuple

from common.record.parts import Environment, Processor

AMD, INTEL = "AuthenticAMD", "GenuineIntel"


class Generation(NamedTuple):
    """Models of a family, from the first to the last, as the Linux kernel knows them."""

    vendor: str
    family: int
    first_model: int
    last_model: int
    name: str


GENERATIONS = (
    Generation(AMD, 23, 0x00, 0x2F, "Zen"),
    Generation(AMD, 23, 0x30, 0xAF, "Zen 2"),
    Generation(AMD, 25, 0x00, 0x0F, "Zen 3"),
    Generation(AMD, 25, 0x10, 0x1F, "Zen 4"),
    Generation(AMD, 25, 0x20, 0x5F, "Zen 3"),
    Generation(AMD, 25, 0x60, 0x7F, "Zen 4"),
    Generation(AMD, 25, 0xA0, 0xAF, "Zen 4"),
    Generation(AMD, 26, 0x00, 0x4F, "Zen 5"),
    Generation(AMD, 26, 0x60, 0x7F, "Zen 5"),
    Generation(INTEL, 6, 63, 63, "Haswell"),
    Generation(INTEL, 6, 79, 79, "Broadwell"),
    Generation(INTEL, 6, 85, 85, "Skylake or Cascade Lake"),
    Generation(INTEL, 6, 106, 106, "Ice Lake"),
    Generation(INTEL, 6, 143, 143, "Sapphire Rapids"),
    Generation(INTEL, 6, 173, 173, "Granite Rapids"),
    Generation(INTEL, 6, 207, 207, "Emerald Rapids"),
)


def describe(environment: Environment) -> str:
    """Returns the processor of a node with its number of cores."""
    return f"{name_of(environment)}, {environment.num_cores} {'core' if environment.num_cores == 1 else 'cores'}"


def name_of(environment: Environment) -> str:
    """Returns a name such as `AMD EPYC, family 26 model 2 (Zen 5), KVM`; of older records the first part alone."""
    processor = environment.processor
    if processor is None:
        return environment.cpu
    numbers = [f"{name} {number}" for name in ("family", "model") if (number := getattr(processor, name)) is not None]
    generation = generation_of(processor)
    identified = " ".join([*numbers, *([f"({generation})"] if generation else [])])
    return ", ".join(filter(None, [environment.cpu, identified, processor.hypervisor]))


def generation_of(processor: Processor) -> str | None:
    """Returns the name of a processor's generation; None where it is not known here."""
    return next(
        (
            generation.name
            for generation in GENERATIONS
            if (processor.vendor, processor.family) == (generation.vendor, generation.family)
            and processor.model is not None
            and generation.first_model <= processor.model <= generation.last_model
        ),
        None,
    )
