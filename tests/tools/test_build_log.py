"""What is told of a build that failed: the compiler's first error, whichever compiler it was."""

import pytest

from kernelgate.tools.kit.build_log import compiler_errors, wants_device, with_first_error
from kernelgate.tools.kit.facts import Fault

BEFORE = "[1/3] c++ -MMD -MF main.o.d -Werror -DTORCH_EXTENSION_NAME=own -I/venv/torch/include -c /c/own/main.cpp\n"
AFTER = "\nninja: build stopped: subcommand failed.\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/c/own/main.cpp:3:5: error: 'x' was not declared", "main.cpp:3:5: error: 'x' was not declared"),
        ("/c/own/main.cpp:1:10: fatal error: no.h: No such file", "main.cpp:1:10: fatal error: no.h: No such file"),
        ('/c/own/cuda.cu(12): error: identifier "y" is undefined', 'cuda.cu(12): error: identifier "y" is undefined'),
        ("cuda.cu(4): error #20: identifier is undefined", "cuda.cu(4): error #20: identifier is undefined"),
        ("ptxas fatal   : Unresolved extern function 'f'", "ptxas fatal   : Unresolved extern function 'f'"),
        ("nvcc fatal   : Unsupported gpu architecture", "nvcc fatal   : Unsupported gpu architecture"),
        ("main.o: undefined reference to `f'\ncollect2: error: ld returned 1", "main.o: undefined reference to `f'"),
        ("/usr/bin/ld: cannot find -lnone: No such file\ncollect2: error: ld", "ld: cannot find -lnone: No such file"),
    ],
)
def test_an_extension_is_told_by_its_first_error_and_not_by_its_command_line(line: str, told: str) -> None:
    message = f"Error building extension 'own': {BEFORE}FAILED: main.o \n{line}{AFTER}"
    assert with_first_error(message) == f"Error building extension 'own': {told}"
    assert compiler_errors(message).startswith(told)


def test_a_build_without_a_line_that_names_an_error_is_told_as_it_is() -> None:
    message = f"Error building extension 'own': {BEFORE}Killed{AFTER}"
    assert with_first_error(message) == message
    assert "Killed" in compiler_errors(message)


def test_what_is_no_extension_is_told_as_it_is() -> None:
    assert with_first_error("ValueError: error: no") == "ValueError: error: no"
    assert compiler_errors("ValueError: error: no") == ""


@pytest.mark.parametrize(
    ("error", "wants"),
    [
        ("AssertionError: Torch not compiled with CUDA enabled", True),
        ("RuntimeError: No CUDA GPUs are available", True),
        ("AcceleratorError: CUDA error: no CUDA-capable device is detected", True),
        ("RuntimeError: Allocator not initialized for device 0: did you call init?", True),
        ("NotImplementedError: Could not run 'aten::empty' with arguments from the 'CUDA' backend.", True),
        ("RuntimeError: PyTorch is not linked with support for cuda devices", True),
        ("RuntimeError: Error building extension 'own': ld: cannot find -l:libcuda.so", False),
        ("NameError: name 'cuda' is not defined", False),
    ],
)
def test_who_asked_for_a_gpu_at_import_is_known_by_what_it_was_told(error: str, wants: bool) -> None:
    assert wants_device(Fault(kind="raised", stage="load", error=error)) is wants
    assert not wants_device(Fault(kind="raised", stage="construct", error=error))
