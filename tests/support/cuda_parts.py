"""A small CUDA: wheels as NVIDIA's index has them, with a compiler that only says what it is."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.support import packages

RELEASE, CUBLAS = "13.0", "13.1.0.3"


def nvcc(release: str = RELEASE, architectures: str = "75 80 86 90 120") -> str:
    """A compiler as a shell script."""
    listed = "; ".join(f"echo compute_{each}" for each in architectures.split())
    version = f"echo 'Cuda compilation tools, release {release}, V{release}.88'"
    return f'#!/bin/sh\ncase "$1" in\n--list-gpu-arch) {listed} ;;\n*) {version} ;;\nesac\n'


def contents(gcc: int = 99) -> Mapping[str, Mapping[str, str]]:
    """What is in each wheel, by its name: paths below nvidia/cu13 and their text."""
    return {
        "nvidia-cuda-nvcc": {"bin/nvcc": nvcc(), "bin/nvcc.profile": "TOP = $(_HERE_)/.."},
        "nvidia-nvvm": {"nvvm/bin/cicc": "cicc", "lib/libnvvm.so.4": "nvvm"},
        "nvidia-cuda-crt": {"include/crt/host_config.h": f"#if __GNUC__ > {gcc}\n#error\n#endif\n"},
        "nvidia-cuda-runtime": {
            "include/cuda_runtime.h": "",
            "lib/libcudart.so.13": "cudart",
            "lib/libcudart_static.a": "static",
        },
        "nvidia-cuda-cccl": {"include/cccl/cub/cub.cuh": "", "lib/cmake/cub/cub-config.cmake": ""},
        "nvidia-cublas": {
            "include/cublas_v2.h": "",
            "lib/libcublas.so.13": "cublas",
            "lib/libcublasLt.so.13": "cublasLt",
            "lib/libnvblas.so.13": "nvblas",
        },
        "nvidia-cuda-nvrtc": {
            "lib/libnvrtc.so.13": "nvrtc",
            "lib/libnvrtc.alt.so.13": "another",
            "lib/libnvrtc-builtins.so.13.0": "builtins",
        },
    }


def files(name: str, version: str, inside: Mapping[str, str], metadata: str = "") -> dict[str, str]:
    """Every file of one wheel, RECORD and licence included."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    found = {f"nvidia/cu13/{path}": text for path, text in inside.items()} | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/licenses/License.txt": f"the licence of {name}",
    }
    contents = {path: text.encode() for path, text in found.items()}
    return found | {f"{info}/RECORD": packages.make_record(contents, info)}


def version_of(name: str) -> str:
    """The version that a wheel has."""
    return CUBLAS if name == "nvidia-cublas" else f"{RELEASE}.88"


def install(site: Path, *, gcc: int = 99, without: str = "", **other: str) -> Path:
    """Lay wheels out as pip does; ``other`` names another version for a wheel (its dashes as underscores)."""
    for name, inside in contents(gcc).items():
        version = other.get(name.replace("-", "_"), version_of(name))
        if name != without:
            for path, text in files(name, version, inside).items():
                _write(site / path, text)
    return site


def pack(folder: Path) -> Path:
    """Write wheels as files for pip, the meta-package that names them all among them."""
    folder.mkdir(parents=True)
    names = {
        "nvcc": "nvidia-cuda-nvcc",
        "nvvm": "nvidia-nvvm",
        "crt": "nvidia-cuda-crt",
        "cudart": "nvidia-cuda-runtime",
        "cccl": "nvidia-cuda-cccl",
        "cublas": "nvidia-cublas",
    }
    needs = "".join(
        f"Provides-Extra: {extra}\nRequires-Dist: {name}=={version_of(name)}; extra == '{extra}'\n"
        for extra, name in names.items()
    )
    needs += f"Requires-Dist: nvidia-cuda-nvrtc=={version_of('nvidia-cuda-nvrtc')}\n"
    _zip(folder, "cuda-toolkit", f"{RELEASE}.3", files("cuda-toolkit", f"{RELEASE}.3", {}, needs))
    for name, inside in contents().items():
        version = version_of(name)
        _zip(folder, name, version, files(name, version, inside))
    return folder


def _zip(folder: Path, name: str, version: str, inside: Mapping[str, str]) -> None:
    with zipfile.ZipFile(folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in inside.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100755 if "/bin/" in path else 0o100644) << 16
            wheel.writestr(entry, text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if "bin" in path.parts:
        path.chmod(0o755)
