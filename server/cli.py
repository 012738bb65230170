"""The command line. Each command imports what it needs when it runs, so that `serve` starts fast."""

import sys
from pathlib import Path
from typing import Any

import click

from kernelgate.server.bench.cli import bench
from kernelgate.server.command_options import data_option as _data
from kernelgate.server.command_options import settings_from as _settings
from kernelgate.server.command_options import settings_options as _options
from kernelgate.server.settings import resolved
from kernelgate.server.tokens import DEFAULT_URL, MOST_DAYS


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="kernelgate")
def main() -> None:
    """Optimise GPU kernels with any coding agent: an MCP server that builds, judges, times and keeps the book."""


@main.command(short_help="Run the MCP server, over stdio or HTTP.")
@click.option(
    "--require-confinement",
    is_flag=True,
    help="Do not run unless everything that doctor knows of holds candidates (KERNELGATE_REQUIRE_CONFINEMENT=1).",
)
@click.option(
    "--http",
    "http_at",
    metavar="[HOST:]PORT",
    default=None,
    help="Serve many agents over HTTP instead (POST to /mcp); on 127.0.0.1 unless another HOST is given.",
)
@click.option("--url", default="", help="Under which address HTTP clients reach it; default: http://HOST:PORT/mcp.")
@click.option(
    "--require-token", is_flag=True, help="Over HTTP ask for a token on this host too; from elsewhere always."
)
@_options
def serve(*, require_confinement: bool, http_at: str | None, url: str, require_token: bool, **options: Any) -> None:
    """Run the MCP server: on stdin and stdout for the agent that started it, or over HTTP for many."""
    settings = _settings(**options)
    required = require_confinement or settings.require_confinement
    settings = settings.model_copy(update={"require_confinement": required})
    if http_at is not None:
        from kernelgate.server.serve_http import run_http

        sys.exit(run_http(settings, http_at, url, needs_token=require_token))
    if url or require_token:
        raise click.UsageError("--url and --require-token are about HTTP: give --http PORT too")
    from kernelgate.server.serve import run_stdio

    sys.exit(run_stdio(settings))


@main.group(short_help="Say who may use a server over HTTP.")
def tokens() -> None:
    """Say who may use this server over HTTP: each token is an account's, with a purse of its own."""


@tokens.command("add")
@click.argument("account")
@click.option("--url", default=DEFAULT_URL, show_default=True, help="Address of the server that the token is for.")
@click.option("--days", type=click.IntRange(1, MOST_DAYS), default=None, help="It ends after so many; default: never.")
@_data
def tokens_add(account: str, url: str, days: int | None, data: Path | None) -> None:
    """Make a token of ACCOUNT and print it, once."""
    from kernelgate.server.token_commands import add

    sys.exit(add(_settings(data), account, url, days))


@tokens.command("list")
@_data
def tokens_list(data: Path | None) -> None:
    """List the tokens, without their secrets."""
    from kernelgate.server.token_commands import show

    sys.exit(show(_settings(data)))


@tokens.command("remove")
@click.argument("token_id")
@_data
def tokens_remove(token_id: str, data: Path | None) -> None:
    """Have TOKEN_ID open nothing any more, in servers that run too."""
    from kernelgate.server.token_commands import remove

    sys.exit(remove(_settings(data), token_id))


@main.command(short_help="Watch a scripted agent optimise a kernel.")
@_options
def demo(**options: Any) -> None:
    """Watch a scripted agent optimise a kernel through the server: every rung, the budget and the book."""
    from kernelgate.server.demo import run_demo

    sys.exit(run_demo(_settings(**options)))


@main.command(short_help="Tell what this host can do.")
@_data
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(data: Path | None, *, as_json: bool) -> None:
    """Tell what this host can do, and what to do about the rest."""
    from kernelgate.server.doctor_command import run_doctor

    sys.exit(run_doctor(_settings(data), as_json=as_json))


@main.command(short_help="Print or write the entry of a client.")
@click.argument("client")
@click.option("--write", is_flag=True, help="Merge the entry into the client's file instead of printing it.")
@click.option(
    "--http",
    "url",
    metavar="URL",
    default="",
    help="Connect it to a server over HTTP there instead. Where KERNELGATE_TOKEN is set, or URL is another host's, the "
    "client sends the token that this variable holds when it starts.",
)
@_options
def config(client: str, *, write: bool, url: str, **options: Any) -> None:
    """Print (or write) the entry that connects CLIENT to this server, and say which time-outs to raise there.

    CLIENT is claude-code, claude-desktop, codex, copilot-cli, cursor, gemini-cli or vscode.
    """
    from kernelgate.server.config_command import run_config

    sys.exit(run_config(_settings(**options), client, _serve_arguments(**options), write=write, url=url))


@main.command(short_help="Make a plugin with server and skill.")
@_options
def plugin(**options: Any) -> None:
    """Make a folder with a plugin (server and skill) for Claude Code and a skill for others, and print its path."""
    from kernelgate.server.plugin_command import run_plugin

    sys.exit(run_plugin(_settings(**options), _serve_arguments(**options)))


def _serve_arguments(
    data: Path | None, task_dirs: tuple[Path, ...], kernelbench: Path | None, device: str | None,
    policy_file: Path | None,
) -> list[str]:  # fmt: skip
    arguments: list[str] = []
    for flag, value in (("--data", data), ("--kernelbench", kernelbench), ("--config", policy_file)):
        if value is not None:
            arguments += [flag, str(resolved(value))]
    for folder in task_dirs:
        arguments += ["--tasks", str(resolved(folder))]
    return arguments + (["--device", device] if device else [])


@main.group()
def tasks() -> None:
    """List and check tasks; add and remove your own."""


@tasks.command("list")
@click.option("--group", default="", help="Only this group.")
@_options
def tasks_list(group: str, **options: Any) -> None:
    """List the tasks that can be optimised, and why others cannot."""
    from kernelgate.server.task_commands import list_tasks

    sys.exit(list_tasks(_settings(**options), group))


@tasks.command("check")
@click.argument("names", nargs=-1, required=True)
@_options
def tasks_check(names: tuple[str, ...], **options: Any) -> None:
    """Check that tasks are sound: the reference runs, and mutant answers fail under the tolerance."""
    from kernelgate.server.task_commands import check_tasks

    sys.exit(check_tasks(_settings(**options), names))


@tasks.command("add")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--kernel", type=click.Path(exists=True, path_type=Path), help="Your own kernel (ModelNew), to start from."
)
@click.option("--replace", is_flag=True, help="Put it in the place of your task of that name.")
@_options
def tasks_add(path: Path, kernel: Path | None, *, replace: bool, **options: Any) -> None:
    """Copy PATH (a KernelBench-style file, or a folder with reference.py) into your tasks."""
    from kernelgate.server.task_commands import add

    sys.exit(add(_settings(**options), path, kernel, replace=replace))


@tasks.command("remove")
@click.argument("name")
@_options
def tasks_remove(name: str, **options: Any) -> None:
    """Delete NAME from the tasks that you added."""
    from kernelgate.server.task_commands import remove

    sys.exit(remove(_settings(**options), name))


@main.command(short_help="List the runs, show one, or close it.")
@click.argument("run_id", required=False)
@click.option("--close", is_flag=True, help="Close the run: nothing more is admitted.")
@_data
def runs(run_id: str | None, data: Path | None, *, close: bool) -> None:
    """List the runs, show one with its candidates, or close it."""
    from kernelgate.server.run_commands import show_runs

    sys.exit(show_runs(_settings(data), run_id, close=close))


@main.command(short_help="Write the best candidate of a run.")
@click.argument("run_id")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; default: print.")
@_data
def best(run_id: str, output: Path | None, data: Path | None) -> None:
    """Write the best candidate of RUN_ID, with its evidence in the header."""
    from kernelgate.server.run_commands import write_best

    sys.exit(write_best(_settings(data), run_id, output))


@main.command(short_help="Write the book as JSON lines.")
@click.argument("ledger", required=False, type=click.Path(path_type=Path))
@click.option(
    "--table", "names", multiple=True, help="Only this table or view; may be given again. Default: all tables."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; default: print.")
@click.option(
    "--blobs", type=click.Choice(["base64", "sha256"]), default="base64", help="Raw samples whole, or their digests."
)
@_data
def export(ledger: Path | None, names: tuple[str, ...], output: Path | None, blobs: Any, data: Path | None) -> None:
    """Write the book as JSON lines: one row a line, its table in front."""
    from kernelgate.server.reading_commands import export_book

    sys.exit(export_book(ledger or _settings(data).ledger, names, output, blobs))


@main.command(short_help="Write the metadata of an audit site.")
@click.argument("ledger", required=False, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; default: print.")
@_data
def datasette(ledger: Path | None, output: Path | None, data: Path | None) -> None:
    """Write the metadata with which Datasette shows the book as a site: datasette LEDGER -m FILE."""
    from kernelgate.server.reading_commands import write_metadata

    sys.exit(write_metadata(ledger or _settings(data).ledger, output))


@main.command(short_help="Verify the book and replay its decisions.")
@click.argument("ledger", required=False, type=click.Path(path_type=Path))
@click.option("--run", "run_id", help="Look into this run only; the chain is always checked whole.")
@click.option("--head", help="A head hash (seq:hash) from a reply: proves that nothing before it was cut or rewritten.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_data
def audit(ledger: Path | None, run_id: str | None, head: str | None, data: Path | None, *, as_json: bool) -> None:
    """Verify the book: hash chain, sums, artifacts, and that every decision follows from its rule."""
    from kernelgate.server.run_commands import audit_book

    sys.exit(audit_book(ledger or _settings(data).ledger, head, as_json=as_json, run_id=run_id))


main.add_command(bench)
