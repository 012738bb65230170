"""What the owner of a server decides about money: caps, prices and rules, from one TOML file. The defaults are good."""

import tomllib
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints, ValidationError

from kernelgate.budget.model import ALL_ACCOUNTS, HOUSE, LOCAL, TOOL_OF_RUNG, Budget, Rung
from kernelgate.budget.rules import find_rules
from kernelgate.tasks.model import Frozen
from kernelgate.tools.kit.catalogue import find_tools
from kernelgate.tools.kit.spec import MeasuringTool

FILE_NAME: Final = "kernelgate.toml"
"""Looked for in the data folder where no other file is named."""
MOST_S: Final = 1e7


class PolicyError(Exception):
    """The file cannot be used: one sentence with the place, the reason and what is allowed."""


class AccountCaps(Frozen):
    """What all runs of an account together may take of a device, ever."""

    device_s: float = Field(ge=0, le=MOST_S)


class Price(Frozen):
    """Of one measuring tool. Its limit is part of how it measures, and no matter of money."""

    first_hold_s: float = Field(gt=0, le=MOST_S)
    """Device seconds that are held before anything is known of the cost; after that a hold is learned from the book."""


class Policy(Frozen):
    """Caps, prices and rules of a server."""

    caps: Budget = Budget()
    """What a run is granted, and the most that an agent may ask for."""
    accounts: dict[Annotated[str, StringConstraints(min_length=1, max_length=200)], AccountCaps] = Field(
        default_factory=dict[str, AccountCaps]
    )
    """Over the caps of its runs; who sends no token has the account `local`."""
    prices: dict[str, Price] = Field(default_factory=dict[str, Price])
    rule: str = "halving"
    """Of runs whose agent asks for none."""
    rules: dict[str, dict[str, float]] = Field(default_factory=dict[str, dict[str, float]])
    """Parameters of a rule; what is not set takes the rule's default."""

    @property
    def device_s_caps(self) -> dict[str, float]:
        """Account → device seconds that all its runs together may take."""
        return {name: account.device_s for name, account in self.accounts.items()}


def read_policy(data_dir: Path, named: Path | None) -> Policy:
    """The policy of the named file, or of the one in the data folder, or the defaults.

    Raises:
        PolicyError: the file is not there, no TOML, or says something that is not known or not possible.
    """
    file = named or data_dir / FILE_NAME
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if named is None:
            return Policy()
        raise PolicyError(f"there is no file {file}; name another with --config") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{file} cannot be read ({error}); mend it or name another with --config") from None
    return policy_of(text, file)


def policy_of(text: str, file: Path) -> Policy:
    """The policy of a TOML text; `file` is for the sentences. Raises `PolicyError`."""
    try:
        policy = Policy.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{file} is no TOML: {error}") from None
    except ValidationError as error:
        raise PolicyError(f"{file}: {_first(error)}") from None
    rules = find_rules()
    for name in (policy.rule, *policy.rules):
        if name not in rules:
            raise PolicyError(f"{file}: there is no rule {name!r}; the rules are: {', '.join(rules)}")
    for name, parameters in policy.rules.items():
        try:
            rules[name].parameters(parameters)
        except ValueError as error:
            raise PolicyError(f"{file}: {error}") from None
    _require_possible(policy, file)
    # What is free has no price.
    tools = tuple(tool for rung, tool in TOOL_OF_RUNG.items() if rung is not Rung.compile)
    for name in policy.prices:
        if name not in tools:
            raise PolicyError(f"{file}: there is no price of {name!r}; prices are set for: {', '.join(tools)}")
    return policy


def _require_possible(policy: Policy, file: Path) -> None:
    """Caps that each may be right and together are not, or of whom nothing is asked."""
    if HOUSE in policy.accounts:
        raise PolicyError(f"{file}: accounts.{HOUSE} cannot have a cap: it pays for what is nobody's fault")
    caps = policy.caps
    if caps.override_calls is not None and caps.override_calls > caps.precise_calls:
        raise PolicyError(
            f"{file}: caps.override_calls = {caps.override_calls} is not possible: each of them is one of the "
            f"{caps.precise_calls} precise_calls"
        )


def binds_nobody(policy: Policy, accounts: Collection[str]) -> str:
    """Why a cap of the policy binds nobody, as one sentence; empty if each binds somebody. `accounts`: with tokens.

    Asked where a server starts, and nowhere else: tokens are made, and the book is read, whatever the caps say.
    """
    for name in policy.accounts:
        if name not in (LOCAL, ALL_ACCOUNTS, *accounts):
            known = ", ".join(sorted(accounts)) or "none has"
            return (
                f"nobody has the account {name!r}, so that accounts.{name} in {FILE_NAME} binds nothing; name "
                f"accounts.{LOCAL} (everybody who connects without a token), "
                f'accounts."{ALL_ACCOUNTS}" (all accounts of the ledger) or one that has a token ({known}): '
                "`kernelgate tokens add ACCOUNT` makes one"
            )
    return ""


def _first(error: ValidationError) -> str:
    # A key that is not known may be why another one is missing.
    first: Any = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    *above, key = (str(part) for part in first["loc"])
    if key == "[key]":  # the name itself is wrong, not what stands below it
        name = above.pop()
        return f"{'.'.join(above)}: {name!r} is not possible as a name: {_lowered(first['msg'])}"
    place = ".".join((*above, key))
    if first["type"] == "extra_forbidden":
        return f"{place} is not known; known here are: {', '.join(_known(above))}"
    if first["type"] == "missing":
        return f"{place} is missing"
    if first["type"] in ("model_type", "dict_type"):
        return f"{place} = {first['input']!r} is not possible: it is a table, [{place}]"
    return f"{place} = {first['input']!r} is not possible: {_lowered(first['msg'])}"


def _lowered(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"


def _known(above: list[str]) -> list[str]:
    """The keys that a table may have."""
    fields: dict[str, type[Frozen]] = {"caps": Budget, "accounts": AccountCaps, "prices": Price}
    return sorted(fields[above[0]].model_fields if above else Policy.model_fields)


def priced_tools(policy: Policy) -> dict[Rung, MeasuringTool[Any, Any, Any, Any, Any]]:
    """The measuring tools, with the prices of the policy in the place of their own."""
    tools: dict[Rung, MeasuringTool[Any, Any, Any, Any, Any]] = {}
    for tool in find_tools():
        if isinstance(tool, MeasuringTool):
            price = policy.prices.get(tool.name)
            tools[tool.rung] = tool if price is None else replace(tool, first_hold_s=price.first_hold_s)
    return tools
