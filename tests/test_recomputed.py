"""Every number of README's results and of the committed report, computed again from the raw records, with numpy and scipy alone."""

import functools
import itertools
import math
import re
from collections import defaultdict

import numpy as np
import pytest
from scipy import special

from tests.support.recomputed import REFERENCE, WORKLOADS, Size, runs_of, shows, size, unexplained
from tests.support.running import ROOT

README = (ROOT / "README.md").read_text()
REPORT = (REFERENCE / "zen5-default.md").read_text().replace("\\", "")
EXPOSED, WAIT, COMPUTE = "communication_exposed_seconds", "data_wait_seconds", "compute_seconds"
# The backends of the names of libraries and frameworks in the report, by the transport.
IN_PYTORCH = {
    ("Horovod", "mpi"): "horovod_torch", ("Horovod", "gloo"): "horovod_torch@gloo", ("ddp", "mpi"): "ddp@mpi", ("ddp", "gloo"): "ddp",
    ("deepspeed_zero", "gloo"): "deepspeed_zero",
}  # fmt: skip
OF_FRAMEWORK = {"PyTorch": "horovod_torch", "TensorFlow": "horovod_tf", "Keras": "horovod_keras"}


def percents(ratio):
    return [100 * (bound - 1) for bound in ratio]


def span(values, least, most):
    """The smallest and the largest value, which must be those of these names."""
    assert (min(values, key=values.get), max(values, key=values.get)) == (least, most)
    return values[least], values[most]


def cells_of(text, heading):
    """The rows of the table whose first column has this heading, each {heading: cell}."""
    lines = iter(text.splitlines())
    (head,) = [line for line in lines if line.startswith(f"| {heading} |")][:1]
    rows = itertools.takewhile(lambda line: line.startswith("|"), text.partition(head + "\n")[2].splitlines()[1:])
    names = [name.strip() for name in head.strip("|").split("|")]
    return [dict(zip(names, (cell.strip() for cell in row.strip("|").split("|")), strict=True)) for row in rows]


def row_of(runs, backend):
    """The numbers of a backend in the main table of the report, by their headings."""
    ratio, is_fastest = runs.ratio(backend, runs.fastest), backend == runs.fastest
    return {
        "time to solution (s)": [runs.time(backend)],
        "with start-up (s)": [runs.with_startup(backend)],
        "epochs": [np.mean(runs.values(backend, lambda record: len(record["accuracies"])))],
        "seconds per epoch": [runs.epoch_seconds(backend)],
        "ratio to fastest": [1.0 if is_fastest else ratio[0]],
        "95 % interval": [] if is_fastest else ratio[1:],
        "accuracy": [runs.trimmed(backend, "accuracy")],
        "samples/s": [runs.trimmed(backend, "samples_per_second")],
    }


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_main_tables_of_the_report(workload):
    rows = cells_of(REPORT.partition(f"### {workload}, weak scaling")[2], "backend")
    assert [(int(row["ranks"]), row["backend"]) for row in rows] == [
        (ranks, name) for ranks in (1, 2) for name in sorted(size(workload, ranks).runs, key=size(workload, ranks).epoch_seconds)
    ]
    for row in rows:
        runs, name = size(workload, int(row["ranks"])), row["backend"]
        records = runs.runs[name].values()
        assert [row["transport"]] == list({record["transport"] or "-" for record in records})
        assert row["reached"] == f"{sum(record['reached'] for record in records)}/{len(records)}"
        assert row["verdict"] == ("fastest" if name == runs.fastest else "slower" if runs.ratio(name, runs.fastest)[1] > 1 else "?")
        wrong = {heading: row[heading] for heading, values in row_of(runs, name).items() if not shows(row[heading], values)}
        assert wrong == {}, name


def effect(runs, above, below, other):
    """The ratio of what is over what, with another factor."""
    if above in OF_FRAMEWORK:
        assert other == "Horovod and mpi"
        return runs.ratio(OF_FRAMEWORK[above], OF_FRAMEWORK[below])
    if other in ("mpi", "gloo"):
        return runs.ratio(IN_PYTORCH[above, other], IN_PYTORCH[below, other])
    library = {"ddp": "ddp", "horovod_torch": "Horovod"}[other]
    return runs.ratio(IN_PYTORCH[library, above], IN_PYTORCH[library, below])


def leaving(runs, library, over):
    """What the report says of leaving Horovod for a library: over each transport, and memory and start-up over the first one."""
    ratios, transports = [], re.findall(r"over (\w+)", over)
    for text, transport in zip(re.findall(r".*?over \w+", over), transports, strict=True):
        ratio = runs.ratio(IN_PYTORCH[library, transport], IN_PYTORCH["Horovod", transport])
        ratios += ratio[1:] if "no difference" in text else ratio
    backends = IN_PYTORCH[library, transports[0]], IN_PYTORCH["Horovod", transports[0]]
    return [*ratios, *map(runs.memory, backends), *map(runs.startup, backends)]


def over_one_rank(workload, factor, value_of):
    """By backend, a value at 2 ranks over that at 1 rank, times a factor."""
    return {name: factor * value_of(size(workload), name) / value_of(size(workload, 1), name) for name in size(workload).runs}


def exposed_percents(workload):
    """By backend, exposed communication over the step, where its interval is above 0."""
    shares = {}
    for name, runs in size(workload).runs.items():
        assert runs.keys() == size(workload, 1).runs[name].keys()
        alone, of_size = size(workload, 1).breakdown(name, EXPOSED), size(workload).breakdown(name, EXPOSED)
        differences = of_size - alone
        reach = -special.stdtrit(len(differences) - 1, 0.025) * differences.std(ddof=1) / math.sqrt(len(differences))
        step = of_size.mean() + sum(size(workload).breakdown(name, key).mean() for key in (WAIT, COMPUTE))
        if differences.mean() > reach:
            shares[name] = 100 * differences.mean() / step
    return shares


def loss_difference(workload):
    """The largest relative difference of the first losses to those of the first backend of the size."""
    differences = []
    for runs in (size(workload, 1).runs, size(workload).runs):
        first = runs["single" if "single" in runs else "ddp"]
        for of_backend in runs.values():
            for key, record in of_backend.items():
                losses, reference = (np.array(of["losses"][:2]) for of in (record, first[key]))
                differences.append(np.max(np.abs(losses - reference) / np.abs(reference)))
    return max(differences)


def records_of(name):
    return [record for of_backend in runs_of(name).values() for record in of_backend.values()]


def own_product():
    """The fastest matrix product of PyTorch over the fastest of all, in percent."""
    fastest = max(record["peak_flops_per_second"] for record in records_of("zen5-default"))
    in_pytorch = [record for record in records_of("zen5-default") if not re.search("tf|keras", record["backend"])]
    return 100 * max(record["peak_flops_per_second"] * record["framework_product_share"] for record in in_pytorch) / fastest


@functools.cache
def deviations(name):
    """By run, by how many percent the machine's speed was off its median at most, and when; medians are of a session, size and kernel."""
    speeds, largest = defaultdict(list), {}
    for (_, num_ranks, _, control), of_backend in runs_of(name).items():
        for (session, _), record in of_backend.items():
            for kernel in ("product_flops_per_second", "copy_bytes_per_second") if control is None else ():
                for when, speed in zip(("before", "after"), (record["machine_noise"] or {}).get(kernel, ()), strict=False):
                    speeds[session, num_ranks, kernel].append((record["settings"]["run_id"], when, speed))
    for of_kernel in speeds.values():
        median = np.median([speed for *_, speed in of_kernel])
        for run, when, speed in of_kernel:
            largest[run] = max(largest.get(run, (0, "")), (100 * (speed / median - 1), when), key=lambda deviation: abs(deviation[0]))
    return largest


def steady(name, percent=5):
    """The number of runs beside which the machine's speed was as near to its median, and of all runs."""
    return sum(abs(largest) <= percent for largest, _ in deviations(name).values()), len(deviations(name))


def disturbed_at(when, run):
    """By how many percent the machine was off its median at the time of its largest deviation, which must be this one."""
    largest = max(deviations("zen5-default"), key=lambda of_run: abs(deviations("zen5-default")[of_run][0]))
    assert (largest, deviations("zen5-default")[largest][1]) == (run, when)
    return abs(deviations("zen5-default")[largest][0])


# The sentences of the report: what follows from the workload of the line and the groups of the pattern.
OF_REPORT = [
    (r"(\S+) before (\S+) by \d+ % \([^)]*\) on (\w+) at 2 ranks", lambda _, first, second, at: percents(size(at).ratio(second, first))),
    (r"(\S+) reached the target first, in \S+ s", lambda at, name: [size(at).time(name)] if name == size(at).first else []),
    (r"(\S+)'s (?:epochs take )?\d+ % \([^)]*\)", lambda at, name: percents(size(at).ratio(name, size(at).fastest))),
    (
        r"With start-up (\S+) is first, in \S+ s",
        lambda at, name: [min(map(size(at).with_startup, size(at).runs))] if name in size(at).runs else [],
    ),
    (
        r"(\S+): copy: \S+ \([^)]*\); 5 % slower: found",
        lambda at, name: size(at).control_ratio(name, "copy") if size(at).control_ratio(name, "delayed")[1] > 1 else [],
    ),
    (
        r"(\w+) over (\w+), with ([\w ]+): \S+ \((?:no difference beyond 5 %, )?[^)]*\)",
        lambda at, above, below, other: effect(size(at), above, below, other),
    ),
    (r"for (ddp|deepspeed_zero): ([^;]*?)(?=;|\.$)", lambda at, library, over: leaving(size(at), library, over)),
    (
        r"efficiency at 2 ranks: \d+ % \((\S+)\) to \d+ % \((\S+)\)",
        lambda at, *names: span(over_one_rank(at, 50, lambda runs, name: runs.trimmed(name, "samples_per_second")), *names),
    ),
    (r"PyTorch multiplies at \d+ %", lambda _: [own_product()]),
    (
        r"takes \S+ s \((\S+)\) to \S+ s \((\S+)\)",
        lambda at, *names: span({name: size(at).startup(name) for name in size(at).runs}, *names),
    ),
    (
        r"memory per rank is \d+ MiB \((\S+)\) to \d+ MiB \((\S+)\)",
        lambda at, *names: span({name: size(at).memory(name) for name in size(at).runs}, *names),
    ),
    (r"communication is \d+ % \((\S+)\) to \d+ % \((\S+)\) of a step", lambda at, *names: span(exposed_percents(at), *names)),
    (r"agree to \S+\.", lambda at: [loss_difference(at)]),
    (r"beside \d+ of \d+ runs, and \d+ % below it (before|after) (\S+)\.", lambda _, *at: [*steady("zen5-default"), disturbed_at(*at)]),
    (r"All \d+ runs reached the target", lambda _: [sum(not record["settings"].get("control") for record in records_of("zen5-default"))]),
    (r"all \d+ runs completed", lambda _: [sum(record["status"] == "ok" for record in records_of("zen5-default"))]),
    (r"reaches \d+ GFLOP/s", lambda _: [max(record["peak_flops_per_second"] for record in records_of("zen5-default")) / 1e9]),
    (r"\((\d+) (?:pairs|runs each)", lambda *_: [len(size("cnn").runs["ddp"])]),
    # A name.
    (r"under Keras \d", lambda _: [3]),
]


@pytest.mark.parametrize("line", [line for line in REPORT.splitlines() if line.startswith("- ")], ids=lambda line: line[2:60])
def test_the_sentences_of_the_report(line):
    assert unexplained(line, OF_REPORT) == ""


def test_the_screen_in_the_readme():
    lines = re.search(r"```text\n.*?ranks\n(.*?)```", README, re.DOTALL).group(1).splitlines()
    runs = size("transformer")
    assert [line.split()[0] for line in lines] == sorted(runs.runs, key=runs.epoch_seconds)
    for line in lines:
        name, numbers = line.split(maxsplit=1)
        ratio = [] if name == runs.fastest else percents(runs.ratio(name, runs.fastest))
        assert shows(numbers, [runs.time(name), runs.startup(name), *ratio]), line


GLOO_OVER_MPI = {"with DDP": ("ddp", "ddp@mpi"), "with Horovod": ("horovod_torch@gloo", "horovod_torch")}
HOROVOD_OVER_DDP = {"with Gloo": ("horovod_torch@gloo", "ddp"), "with MPI": ("horovod_torch", "ddp@mpi")}
SIMPLE_EFFECTS = {f"Gloo over MPI, {library}": pair for library, pair in GLOO_OVER_MPI.items()} | {
    f"Horovod over DDP, {transport}": pair for transport, pair in HOROVOD_OVER_DDP.items()
}


def test_the_effects_in_the_readme():
    rows = cells_of(README, "an epoch's time at 2 ranks")
    assert {row["an epoch's time at 2 ranks"] for row in rows} == set(SIMPLE_EFFECTS)
    for row in rows:
        above, below = SIMPLE_EFFECTS[row.pop("an epoch's time at 2 ranks")]
        assert [workload for workload, cell in row.items() if not shows(cell, size(workload).ratio(above, below))] == [], row


def framework(name):
    """How many times as long an epoch of PyTorch takes as one of TensorFlow, both with Horovod, on the Transformer of a set."""
    return size("transformer", name=name).ratio("horovod_torch", "horovod_tf")


@functools.cache
def controls_found():
    """In how many comparisons of 6 repeats the delayed control was called slower, in how many the copy different, and in all."""
    ratios = [
        [Size({at: of_session(runs, session) for at, runs in runs_of(name).items()}, workload, 2).control_ratio("ddp", control)
         for control in ("delayed", "copy")]
        for name in ("zen5-default", "zen5-fast", "zen3-default")
        for session in {session for runs in runs_of(name).values() for session, _ in runs}
        for workload in WORKLOADS
    ]  # fmt: skip
    return sum(delayed[1] > 1 for delayed, _ in ratios), sum(not copy[1] <= 1 <= copy[2] for _, copy in ratios), len(ratios)


def of_session(runs, session):
    return {key: record for key, record in runs.items() if key[0] == session}


OF_README = [
    (r"\d+ seeds", lambda *_: [len({record["seed"] for record in records_of("zen5-default")})]),
    (
        r"after \S+ s and `ddp@mpi` with the Transformer after \S+ s, `horovod_tf` after \S+ s and \S+ s",
        lambda _: [
            *(min(map(size(at).with_startup, size(at).runs)) for at in WORKLOADS),
            *(size(at).with_startup("horovod_tf") for at in WORKLOADS),
        ],
    ),
    (r"slower in \d+ of \d+ comparisons", lambda _: controls_found()[::2]),
    (
        r"takes \S+ times that of `horovod_tf` here \([^)]*\), and \S+ times \([^)]*\) on `zen3-default`",
        lambda _: [framework("zen5-default")[0], *framework("zen5-default")[1:], *framework("zen3-default")],
    ),
    (
        r"its own `tf_mirrored` took \S+ and \S+ times as long",
        lambda _: [size(at, name="zen3-default").ratio("tf_mirrored", "horovod_tf")[0] for at in WORKLOADS],
    ),
    (r"explain the \S+: with `--mkl-kernels fast` it is \S+ \([^)]*\)", lambda _: [framework("zen5-default")[0], *framework("zen5-fast")]),
    (
        r"an epoch takes \S+ to \S+ times as long",
        lambda _: [
            bound(size(at).ratio(*pair)[0] for at, pair in itertools.product(WORKLOADS, GLOO_OVER_MPI.values())) for bound in (min, max)
        ],
    ),
]


def test_the_sentences_of_the_readme():
    results = README.partition("## Results")[2].partition("## Why")[0]
    sentences = re.sub(r"```.*?```|^\|.*?$|\([^ )]*\)|<!--.*?-->", "", results, flags=re.DOTALL | re.MULTILINE)
    assert [left for line in sentences.split("\n\n") if (left := unexplained(" ".join(line.split()), OF_README))] == []
    assert {size(at).fastest for at in WORKLOADS} == {"horovod_tf"}
    for at in WORKLOADS:
        # Plain training is the fastest of its framework.
        for plain in ("single", "single_tf", "single_keras"):
            of_framework = [name for name in size(at, 1).runs if ("_tf" in name, "_keras" in name) == ("_tf" in plain, "_keras" in plain)]
            assert min(of_framework, key=size(at, 1).epoch_seconds) == plain


def test_the_sets_in_the_page_of_records():
    page = (ROOT / "results" / "README.md").read_text()
    for row in cells_of(page, "set"):
        records = [record for record in records_of(row["set"].strip("`")) if not record["settings"].get("control")]
        num_steady, num_runs = steady(row["set"].strip("`"))
        far = num_runs - steady(row["set"].strip("`"), 20)[0]
        assert row["runs: steady, disturbed"] == f"{num_runs}: {num_steady}, {far}", row["set"]
        seeds = [record["seed"] for record in records]
        num_sessions = len({record["settings"]["run_id"][:22] for record in records})
        assert row["sessions"] == f"{num_sessions}, seeds {min(seeds)} to {max(seeds)}"
        for record in records:
            processor = record["environment"].get("processor")
            numbers = (
                f"family {processor['family']}, model {processor['model']}), {processor['hypervisor']}" if processor else "not recorded"
            )
            assert row["processor, hypervisor"].endswith(numbers)
            variables = {name: value for name, value in record["environment"]["variables"].items() if name.startswith("OPENBLAS")}
            assert row["variables"] == (", ".join(f"`{name}={value}`" for name, value in variables.items()) or "none")
    ratios = [size("transformer", name=name).ratio("ddp@mpi", "horovod_tf")[0] for name in ("zen5-default", "zen5-fast")]
    sentence = "takes {:.2f} times that of `horovod_tf` in `zen5-default`, and {:.2f} in `zen5-fast`"
    assert sentence.format(*ratios) in " ".join(page.split())


def test_the_sentences_of_other_pages():
    delayed_found, copies_called_different, num_comparisons = controls_found()
    assert copies_called_different == 0
    text = " ".join((ROOT / "launch" / "report" / "README.md").read_text().split())
    sentence = "{} comparisons of 6 repeats, no copy was called different, and {} of those delayed by 5 % were called slower"
    assert sentence.format(num_comparisons, delayed_found) in text
    epochs = [
        [len(record["accuracies"]) for of_backend in size(at, ranks).runs.values() for record in of_backend.values()]
        for at in WORKLOADS for ranks in (1, 2)
    ]  # fmt: skip
    sentence = "the CNN takes {} to {} at 1 rank and {} to {} at 2, and the Transformer {} to {} and {} to {}."
    text = " ".join((ROOT / "common" / "README.md").read_text().split())
    assert sentence.format(*(bound(numbers) for numbers in epochs for bound in (min, max))) in text


def test_the_seconds_of_reading_in_the_page_of_the_clock():
    backends = {(ranks, name): re.search("_tf|_keras", name) for ranks in (1, 2) for name in size("cnn", ranks).runs}
    load = {(ranks, name): size("cnn", ranks).trimmed(name, "load_seconds") for ranks, name in backends}
    of_pytorch, of_tensorflow = (
        [1000 * seconds for key, seconds in load.items() if bool(backends[key]) is is_tensorflow] for is_tensorflow in (False, True)
    )
    shares = [100 * seconds / size("cnn", ranks).time(name) for (ranks, name), seconds in load.items()]
    values = (bound(numbers) for numbers in (of_pytorch, of_tensorflow, shares) for bound in (min, max))
    sentence = (
        r"takes \d+ to \d+ ms to read under PyTorch and \d+ to \d+ ms under TensorFlow, which is \S+ to \S+ % of the time to solution"
    )
    text = " ".join((ROOT / "common" / "README.md").read_text().split())
    assert shows(re.search(sentence, text).group(), values)
