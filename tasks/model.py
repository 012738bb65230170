"""The nouns of a task: `Task`, `Workload`, `Tolerance`, `Candidate`. Frozen, strict, and free of torch."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, StringConstraints, model_validator
from typing_extensions import TypeAliasType

from kernelgate.tasks.source_scan import scan_files

MAX_SOURCE_BYTES: Final = 1 << 19
"""Largest candidate, all files together (512 KiB): a frame between processes holds 1 MiB of JSON."""
MAX_ENCODED_BYTES: Final = 3 << 18
"""The same as JSON, where quotes and control characters take more room (768 KiB): the task shares the frame."""
MAX_CANDIDATE_FILES: Final = 32
ENTRY_FILE: Final = "candidate.py"
"""The file of a candidate that defines `ModelNew`."""

DeviceKind: TypeAlias = Literal["cpu", "cuda"]
Dtype: TypeAlias = Literal["float64", "float32", "float16", "bfloat16", "float8", "complex", "integer", "bool"]
Scalar: TypeAlias = int | float | bool | str
if TYPE_CHECKING:
    Override: TypeAlias = "Scalar | tuple[Override, ...]"
else:  # pydantic follows an alias into itself only in this form, which pyright loses in some orders of checking
    Override = TypeAliasType("Override", "Scalar | tuple[Override, ...]")
Precision: TypeAlias = Literal["ieee", "tf32"]
Baseline: TypeAlias = Literal["eager", "compile", "cuda_graph"]
Distribution: TypeAlias = Literal[
    "original",
    "normal",
    "uniform",
    "large",
    "small",
    "mixed",
    "zeros",
    "ones",
    "spikes",
    "denormal",
    "nonfinite",
    "offset",
]
MAIN_DISTRIBUTIONS: Final[tuple[Distribution, ...]] = ("normal", "uniform", "large")
"""What a tolerance that is not calibrated can be trusted on."""
DEFAULT_DISTRIBUTIONS: Final[tuple[Distribution, ...]] = (
    *MAIN_DISTRIBUTIONS,
    "small",
    "mixed",
    "zeros",
    "ones",
    "spikes",
)
"""Not `denormal`, which a GPU may flush to zero, nor `nonfinite`, where fast code differs: a task asks for those."""
HIDDEN_DISTRIBUTION: Final[Distribution] = "offset"
"""Drawn from by `precise_time` only, and named only where an answer failed under it."""
Domain: TypeAlias = Annotated[str, StringConstraints(pattern=r"^(any|probability|positive|index\(\d+\))$")]
"""What the values of an input may be: `any`, `probability` (in [0, 1], rows sum to one), `positive`, `index(n)`."""


class Frozen(BaseModel):
    """Base of everything that crosses a border: frozen, closed, strict, without NaN or infinity."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def canonical_json(value: JsonValue) -> str:
    """The one text of a JSON value that digests are taken over: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_hex(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def as_tuples(value: object) -> object:
    """JSON and TOML have lists where a frozen model has tuples."""
    if isinstance(value, list | tuple):
        return tuple(as_tuples(item) for item in cast("Iterable[object]", value))
    return value


def _no_tolerances() -> "dict[Dtype, Tolerance]":
    return {}


class Workload(Frozen):
    """One set of shapes of a task: the module constants that it replaces."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_]{0,39}$")]
    overrides: dict[str, Annotated[Override, BeforeValidator(as_tuples)]] = Field(default_factory=dict)
    """Top-level constant of the reference file → the value that replaces its right-hand side."""
    held_out: bool = False
    """Judged at `precise_time`, never shown to the agent."""
    devices: Annotated[tuple[DeviceKind, ...], BeforeValidator(as_tuples)] = ("cpu", "cuda")
    """Where this workload is run."""
    shrink_to_bytes: int = Field(default=0, ge=0)
    """Above 0: made small by the referee, to the first of `source.shrink_steps` whose forward works and whose inputs
    and outputs fit so many bytes. Only `tiny` and `small` of a task without `task.toml` have it."""

    @model_validator(mode="after")
    def _shrinks_or_overrides(self) -> "Workload":
        if self.shrink_to_bytes and self.overrides:
            raise ValueError(f"workload {self.name} is made small automatically and cannot also override constants")
        return self


class Tolerance(Frozen):
    """As a task states one: an element is right when |got - want| <= atol * max(1, median |want|) + rtol * |want|."""

    rtol: float = Field(ge=0, le=0.5)
    atol: float = Field(ge=0, le=1)


class Bound(Frozen):
    """What qualification found for one output: an element is right when |got - want| <= atol + rtol * |want|."""

    workload: str
    distribution: Distribution
    output: str
    """Its path, e.g. `[1]` or `['logits']`; empty for a single tensor."""
    rtol: float = Field(ge=0)
    atol: float = Field(ge=0)


_NOT_DECISIVE: Final = frozenset({"name", "title", "group", "description", "bounds"})
"""Fields of a task that its author does not decide, or that no verdict depends on."""


class Task(Frozen):
    """What is to be made faster. Its digest covers everything that a verdict depends on."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,159}$")]
    """`softmax`, or `kernelbench/level1/19_ReLU` for a file of a checkout."""
    title: str
    group: str
    """Where it was found: `bundled`, the name of a user's folder, `kernelbench/level1`, …"""
    description: str = ""
    """What it computes and what to mind, for whoever optimises it."""
    source: str
    """The reference file: `Model`, `get_inputs`, `get_init_inputs`, module constants."""
    workloads: tuple[Workload, ...] = Field(min_length=1)
    tolerances: dict[Dtype, Tolerance] = Field(default_factory=_no_tolerances)
    """Per dtype, as its author states them; what is missing is calibrated, or comes from `DEFAULT_TOLERANCES`."""
    precision: Precision = "ieee"
    """Matrix arithmetic of both sides: `ieee` forbids TF32, `tf32` allows it."""
    weight_seed: int = 0
    """Public seed under which reference and candidate build their weights."""
    distributions: Annotated[tuple[Distribution, ...], BeforeValidator(as_tuples)] = DEFAULT_DISTRIBUTIONS
    domains: tuple[Domain, ...] = ()
    """Domain of each input by position; missing ones are `any`."""
    languages: tuple[Literal["torch", "triton", "cuda"], ...] = ("torch", "triton", "cuda")
    """What a candidate may be written in; a candidate without any of the others is a `torch` candidate."""
    allow_library_calls: bool = True
    """Whether a candidate may compute with operators of torch; else only memory, views and copies are left to it."""
    baselines: tuple[Baseline, ...] = ("eager",)
    """What a candidate is compared with: always the eager reference, and on request torch.compile and a CUDA graph."""
    baseline_kernel: str | None = None
    """The user's own kernel (source with `ModelNew`): first candidate and incumbent of each run."""
    bounds: Annotated[tuple[Bound, ...], BeforeValidator(as_tuples)] = ()
    """What the qualification in the environment of a call found; no part of the task itself."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Task":
        names = [workload.name for workload in self.workloads]
        if len(set(names)) != len(names):
            raise ValueError(f"workload names must be unique, got {names}")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 over all that its author decides of a verdict (not name, title, group or description)."""
        return digest_of_spec(self.model_dump(mode="json"))

    def workloads_on(self, device: DeviceKind, *, held_out: bool) -> tuple[Workload, ...]:
        """The workloads run on a kind of device; with `held_out`, also the hidden ones."""
        return tuple(w for w in self.workloads if device in w.devices and (held_out or not w.held_out))

    def bound(self, workload: str, distribution: Distribution, output: str) -> Bound | None:
        """The calibrated bound of one output; None where the tolerance of its dtype holds."""
        place = (workload, distribution, output)
        return next((b for b in self.bounds if (b.workload, b.distribution, b.output) == place), None)

    def tolerance(self, dtype: Dtype) -> Tolerance:
        """The tolerance for one dtype."""
        return self.tolerances.get(dtype, DEFAULT_TOLERANCES[dtype])


def digest_of_spec(spec: Mapping[str, JsonValue]) -> str:
    """The digest of a task that was kept as JSON, by this version or by one that knew other fields."""
    return sha256_hex(canonical_json({name: value for name, value in spec.items() if name not in _NOT_DECISIVE}))


EXACT: Final = Tolerance(rtol=0.0, atol=0.0)
DEFAULT_TOLERANCES: Final[dict[Dtype, Tolerance]] = {
    # Room for another order of summation, and tight enough that zeros, the mean or the input do not pass.
    "float64": Tolerance(rtol=1e-7, atol=1e-8),
    "float32": Tolerance(rtol=1e-4, atol=1e-5),
    "float16": Tolerance(rtol=1e-2, atol=1e-3),
    "bfloat16": Tolerance(rtol=2e-2, atol=1e-2),
    "float8": Tolerance(rtol=1e-1, atol=1e-1),
    "complex": Tolerance(rtol=1e-4, atol=1e-5),
    "integer": EXACT,
    "bool": EXACT,
}


class Candidate(Frozen):
    """Source files for one task. The digest is derived, never passed in."""

    files: dict[str, str]
    """File name → text; `candidate.py` defines `ModelNew`."""

    @model_validator(mode="after")
    def _is_a_flat_folder_of_bounded_size(self) -> "Candidate":
        if ENTRY_FILE not in self.files:
            raise ValueError(f"one file must be named {ENTRY_FILE} and define ModelNew; got {sorted(self.files)}")
        if len(self.files) > MAX_CANDIDATE_FILES:
            raise ValueError(f"{len(self.files)} files; at most {MAX_CANDIDATE_FILES} are taken")
        for name in self.files:
            plain = name.replace("_", "").replace("-", "").replace(".", "")
            if not (plain.isascii() and plain.isalnum()) or name.startswith((".", "-")) or len(name) > 80:
                raise ValueError(f"file name {name!r}: use letters, digits, '.', '_' and '-', no folders")
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in self.files.values())
        if size > MAX_SOURCE_BYTES:
            raise ValueError(f"the source has {size:,} bytes; at most {MAX_SOURCE_BYTES:,} are taken")
        for name, text in self.files.items():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise ValueError(f"{name} is not valid UTF-8 text") from None
        encoded = len(canonical_json(dict(self.files)).encode())
        if encoded > MAX_ENCODED_BYTES:
            raise ValueError(
                f"the source has {encoded:,} bytes as JSON; at most {MAX_ENCODED_BYTES:,} are taken:"
                " leave out control characters and quotes"
            )
        return self

    @property
    def digest(self) -> str:
        """SHA-256 over names and texts of all files."""
        return sha256_hex(canonical_json(dict(self.files)))

    @property
    def language(self) -> Literal["torch", "triton", "cuda"]:
        """What the candidate is written in, by what it imports or ships. Not trusted for a verdict."""
        return scan_files(self.files).language
