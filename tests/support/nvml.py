"""A stand-in for NVML on a node with three GPUs, where there are none."""

from types import SimpleNamespace

import pynvml

GIB = 2**30


class Driver:
    """What each GPU has used, who computes on it with how much memory, and its free memory."""

    def __init__(self):
        self.millijoules = {"first": 1000, "second": 5000, "third": 20000}
        self.bytes_by_pid = {"first": {1: GIB}, "second": {1: GIB, 7: 3 * GIB}, "third": {8: None}}

    def nvmlInit(self):
        pass

    def nvmlDeviceGetCount(self):
        return len(self.millijoules)

    def nvmlDeviceGetHandleByIndex(self, number):
        return list(self.millijoules)[number]

    def nvmlDeviceGetHandleByPciBusId(self, bus_id):
        return {"0000:07:00.0": "second"}[bus_id]

    def nvmlDeviceGetName(self, gpu):
        return f"the {gpu} GPU"

    def nvmlSystemGetDriverVersion(self):
        return "580.65"

    def nvmlDeviceGetComputeRunningProcesses(self, gpu):
        return [SimpleNamespace(pid=pid, usedGpuMemory=size_bytes) for pid, size_bytes in self.bytes_by_pid[gpu].items()]

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu):
        return self.millijoules[gpu]

    def nvmlDeviceGetMemoryInfo(self, gpu):
        return SimpleNamespace(free={"first": 9 * GIB, "second": 4 * GIB, "third": 5 * GIB}[gpu], used=GIB)


def refuse(*_):
    """Stands for a function that a GPU does not support."""
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def install(monkeypatch, driver):
    """Puts the driver's functions in the place of pynvml's."""
    for name in dir(driver):
        if name.startswith("nvml"):
            monkeypatch.setattr(pynvml, name, getattr(driver, name))
