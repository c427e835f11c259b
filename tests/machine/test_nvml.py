"""NVIDIA's GPUs are read while something runs, field by field, by a thread that ends with it."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from ggufspec import machine
from ggufspec.doctor import machines
from ggufspec.doctor.finding import FindingStatus
from ggufspec.domain import Conditions
from ggufspec.machine import Gpu, Watch, nvml
from ggufspec.machine.nvml import Reading
from ggufspec.machine.sampling import GpuSampler, Moment, summary
from tests.support import fake_nvml
from tests.support.fake_nvml import FakeGpu

GIB = 1 << 30
IDLE = Reading(345.0, 1593.0, 30.0, 75.0, GIB, ())
BUSY = Reading(1980.0, 3201.0, 61.0, 300.0, 20 * GIB, ())
FIELDS = {
    "nvmlDeviceGetClockInfo": {"gpu_mhz", "gpu_memory_mhz"},
    "nvmlDeviceGetTemperature": set[str](),  # another function takes its place
    "nvmlDeviceGetPowerUsage": {"gpu_peak_w"},
    "nvmlDeviceGetEnforcedPowerLimit": {"gpu_power_limit_w"},
    "nvmlDeviceGetMemoryInfo": {"gpu_used_bytes", "gpu_peak_bytes"},
    "nvmlDeviceGetTotalEnergyConsumption": set[str](),  # power takes its place
}

Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put GPUs into this machine."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return partial(fake_nvml.install, monkeypatch)


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ggufspec-gpus"]


def _until(true: Callable[[], bool], within_s: float = 2.0) -> bool:
    end = time.monotonic() + within_s
    while not true() and time.monotonic() < end:
        time.sleep(0.005)
    return true()


def _known(conditions: Conditions) -> set[str]:
    return {name for name, value in vars(conditions).items() if name.startswith("gpu") and value is not None}


@pytest.mark.parametrize("kind", ["no driver", "no GPU", "hidden"])
def test_without_gpus_nothing_is_known(install: Install, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    install(*([] if kind == "no GPU" else [FakeGpu()]))
    if kind == "no driver":
        monkeypatch.setattr(sys.modules["pynvml"], "nvmlInit", _no_driver)
    if kind == "hidden":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not nvml.present()
    assert (machine.nvidia_gpus(), nvml.read_gpus(), nvml.energy_mj(), nvml.total_bytes()) == ((),) * 4
    assert (nvml.driver_version(), nvml.power_limit_w(), nvml.temperature_c()) == (None, None, None)
    watch = Watch.start()
    assert not _threads()
    assert _known(watch.conditions()) == set()


def _no_driver() -> None:
    raise fake_nvml.NVMLError(9)


def test_the_real_package_has_what_is_asked_of_it() -> None:
    real = pytest.importorskip("pynvml")
    fake = {name for name in vars(fake_nvml.module()) if name.lower().startswith("nvml")}
    assert not {name for name in fake if not hasattr(real, name)}
    assert (real.NVML_CLOCK_SM, real.NVML_CLOCK_MEM, real.NVML_TEMPERATURE_GPU) == (1, 2, 0)
    assert issubclass(real.NVMLError_NotSupported, real.NVMLError)
    assert real.NVMLError(fake_nvml.NOT_SUPPORTED).value == real.NVML_ERROR_NOT_SUPPORTED
    named = [name for name in vars(real) if name.startswith("nvmlClocks") and "Reason" in name]
    said = {bit: name for name in named if (bit := getattr(real, name)).bit_count() == 1}
    assert set(nvml._REASONS) >= set(said) - {real.nvmlClocksEventReasonGpuIdle}  # older ones have fewer
    slow = {said[bit] for bit, name in nvml._REASONS.items() if name in nvml.SLOWDOWNS}
    assert len(slow) == 3
    assert all("Thermal" in name or "PowerBrake" in name for name in slow)


def test_the_thread_ends_with_the_run(install: Install) -> None:
    install(FakeGpu())
    watch = Watch.start()
    assert len(_threads()) == 1
    first = watch.conditions()
    assert not _threads()
    again = watch.conditions()
    assert (again.gpu_c, again.gpu_j) == (first.gpu_c, first.gpu_j)


def test_the_thread_ends_where_a_run_breaks_off(install: Install) -> None:
    install(FakeGpu())
    running = 0

    def run() -> None:
        nonlocal running
        with Watch.start():
            running = len(_threads())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert (running, _threads()) == (1, [])


def test_the_thread_of_a_forgotten_watch_ends(install: Install) -> None:
    install(FakeGpu())
    watch = Watch.start()
    assert len(_threads()) == 1
    del watch
    gc.collect()
    assert _until(lambda: not _threads())


def test_what_happens_meanwhile_is_seen(install: Install) -> None:
    gpu = FakeGpu(used_bytes=GIB)
    install(gpu)
    sampler = GpuSampler(period_s=0.005)
    gpu.used_bytes, gpu.celsius, gpu.milliwatts, gpu.reasons = 30 * GIB, 71, 512_000, 0x40 | 0x1
    seen = len(gpu.asked)
    assert _until(lambda: len(gpu.asked) > seen + 30)
    gpu.used_bytes, gpu.celsius, gpu.milliwatts, gpu.reasons = GIB, 50, 90_000, 0x4
    gpu.millijoules += 12_000
    found = sampler.stop()
    assert (found.gpu_used_bytes, found.gpu_peak_bytes) == (GIB, 30 * GIB)
    assert (found.gpu_c, found.gpu_peak_w, found.gpu_power_limit_w) == (71, 512.0, 700.0)
    assert found.gpu_j == 12.0
    assert "hw-thermal" in (found.gpu_throttled or ())
    asked = len(gpu.asked)
    time.sleep(0.03)
    assert len(gpu.asked) == asked


@pytest.mark.parametrize("refused", FIELDS)
@pytest.mark.parametrize("error", [fake_nvml.NOT_SUPPORTED, fake_nvml.NO_PERMISSION, fake_nvml.GPU_IS_LOST])
def test_a_refused_field_loses_no_other(install: Install, refused: str, error: int) -> None:
    install(FakeGpu())
    whole = _known(Watch.start().conditions())
    assert whole == {name for name in vars(Conditions()) if name.startswith("gpu")}
    install(FakeGpu(refuses={refused: error}))
    assert whole - _known(Watch.start().conditions()) == FIELDS[refused]


def test_no_temperature_is_no_other_field_s_loss(install: Install) -> None:
    names = ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")
    install(FakeGpu(refuses=dict.fromkeys(names, fake_nvml.NOT_SUPPORTED)))
    found = Watch.start().conditions()
    assert (found.gpu_c, found.gpu_mhz) == (None, 1980)
    install(FakeGpu(celsius=52), without=names[:1])
    assert nvml.temperature_c() == 52


def test_one_gpu_does_not_pass_for_two(install: Install) -> None:
    mig = FakeGpu(uuid="GPU-b", refuses={"nvmlDeviceGetMemoryInfo": fake_nvml.NO_PERMISSION}, celsius=44)
    install(FakeGpu(), mig)
    found = Watch.start().conditions()
    assert (found.gpu_used_bytes, found.gpu_peak_bytes) == (None, None)
    assert (found.gpu_c, found.gpu_mhz, found.gpu_power_limit_w) == (44, 1980, 1400.0)
    assert nvml.total_bytes() == ()


@pytest.mark.parametrize("older", ["driver", "package"])
def test_reasons_of_older_drivers_and_packages(install: Install, older: str) -> None:
    name = "nvmlDeviceGetCurrentClocksEventReasons"
    if older == "driver":
        install(FakeGpu(reasons=0x84, refuses={name: fake_nvml.FUNCTION_NOT_FOUND}))
    else:
        install(FakeGpu(reasons=0x84), without=(name,))
    assert nvml.read_gpus()[0].reasons == ("sw-power-cap", "hw-power-brake")


def test_reasons_that_nobody_tells_are_unknown(install: Install) -> None:
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    install(FakeGpu(refuses=dict.fromkeys(names, fake_nvml.NOT_SUPPORTED)))
    assert Watch.start().conditions().gpu_throttled is None
    install(FakeGpu(reasons=0x1))
    assert Watch.start().conditions().gpu_throttled == ()


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, "ac"),
        ("0", "a"),
        ("2,0", "ca"),
        ("1", ""),
        ("GPU-c", "c"),
        ("0,7,2", "a"),
        ("-1", ""),
        ("", ""),
    ],
)
def test_gpus_are_those_that_cuda_would_use(
    install: Install, monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: str
) -> None:
    """The second one shares the host's memory, and reports none."""
    shares = {"nvmlDeviceGetMemoryInfo": fake_nvml.NOT_SUPPORTED}
    gpus = [FakeGpu(uuid=f"GPU-{name}", name=name, refuses=shares if name == "b" else {}) for name in "abc"]
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    install(*gpus)
    found = [Gpu(name=name, total_bytes=80 * GIB, free_bytes=79 * GIB) for name in expected]
    assert machine.nvidia_gpus() == tuple(found)
    nvml.temperature_c()
    assert ("nvmlDeviceGetTemperature" in gpus[0].asked) == ("a" in expected)


def test_the_machine_s_gpus_are_described(install: Install) -> None:
    install(FakeGpu(), FakeGpu(uuid="GPU-b", total_bytes=24 * GIB))
    here = machine.snapshot()
    assert (here.gpu_driver, here.gpu_bytes) == ("580.65.06", (80 * GIB, 24 * GIB))


def _moments(*each: Reading, step_s: float = 0.5) -> list[Moment]:
    return [Moment(10 + place * step_s, (reading,)) for place, reading in enumerate(each)]


def test_what_counts_is_while_it_runs() -> None:
    found = summary(_moments(IDLE, BUSY, BUSY._replace(sm_mhz=1900.0), IDLE), [None], [None])
    assert (found.gpu_mhz, found.gpu_memory_mhz) == (1940.0, 3201.0)
    assert summary(_moments(IDLE, BUSY), [None], [None]).gpu_mhz == (345 + 1980) / 2
    cap, hot = BUSY._replace(reasons=("sw-power-cap",)), BUSY._replace(reasons=("hw-thermal", "hw-slowdown"))
    assert summary(_moments(hot, BUSY, cap, hot), [None], [None]).gpu_throttled == ("sw-power-cap",)
    assert summary(_moments(IDLE, hot, cap, IDLE), [None], [None]).gpu_throttled == (
        *("hw-slowdown", "hw-thermal", "sw-power-cap"),
    )


@pytest.mark.parametrize(
    ("before", "after", "watts", "joules"),
    [
        (5_000.0, 65_000.0, (75, 300, 300, 75), 60.0),
        (5_000.0, 5_000.0, (75, 300, 300, 75), 0.0),
        (None, None, (75, 300, 300, 75), 337.5),
        (65_000.0, 5_000.0, (75, 300, 300, 75), 337.5),  # the counter began anew
        (None, 5_000.0, (75, None, None, 75), 112.5),
        (None, None, (None, 300, None, None), None),
    ],
)
def test_energy_is_counted_or_else_summed_up(
    before: float | None, after: float | None, watts: tuple[float | None, ...], joules: float | None
) -> None:
    moments = _moments(*(BUSY._replace(watts=each) for each in watts))
    found = summary(moments, [before], [after])
    assert found.gpu_j == joules
    assert found.gpu_w == (None if joules is None else pytest.approx(joules / 1.5))
    assert found.gpu_c == 61.0


def test_gpus_are_added_up() -> None:
    moments = [Moment(float(second), (BUSY, BUSY._replace(watts=100.0))) for second in range(3)]
    found = summary(moments, [0.0, None], [30_000.0, None])
    assert (found.gpu_j, found.gpu_peak_w, found.gpu_peak_bytes) == (230.0, 400.0, 40 * GIB)
    silent = [moment._replace(gpus=(BUSY, BUSY._replace(watts=None))) for moment in moments]
    assert summary(silent, [0.0, None], [30_000.0, None]).gpu_j is None
    lost = Reading(None, None, None, None, None, None)
    found = summary(_moments(IDLE, lost, BUSY, IDLE), [None], [None])
    assert (found.gpu_mhz, found.gpu_peak_bytes, found.gpu_throttled) == (1980.0, 20 * GIB, ())


def test_the_doctor_looks_at_gpus(install: Install) -> None:
    install(FakeGpu(reasons=0x4), FakeGpu(uuid="GPU-b", celsius=55))
    (fine,) = machines.gpu_state()
    assert (fine.status, fine.text) == (FindingStatus.OK, "driver 580.65.06, 200 W of 1400 W, 55 °C")
    install(FakeGpu(reasons=0x40, refuses={"nvmlDeviceGetPowerUsage": fake_nvml.NOT_SUPPORTED}))
    (hot,) = machines.gpu_state()
    assert (hot.status, hot.text) == (
        FindingStatus.REMARK,
        "driver 580.65.06, 40 °C; slowed down: hw-thermal",
    )
    install()
    assert not list(machines.gpu_state())
