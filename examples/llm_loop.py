"""A language model optimises a kernel, through any API that speaks OpenAI's chat completions.

OPENAI_BASE_URL (say `http://127.0.0.1:8000/v1`), OPENAI_API_KEY and OPENAI_MODEL name it; then
`python examples/llm_loop.py softmax --rounds 8 -- --data FOLDER`, where what follows `--` goes to `kernelgate serve`.
The model sees the reference and, after each candidate, what the server said of it. This loop calls the tools, so a
model that calls none will do.
"""

import argparse
import json
import os
import re
import sys
import urllib.request
from functools import partial
from typing import Any

import anyio
from mcp import Client
from session import Stop, call, parted, patiently, play

RULES = """You make GPU kernels faster. Answer with one sentence that says what you change and why it should be faster,
then with one Python block that defines ModelNew: the constructor and forward of the reference's Model, the same
results. Write Triton or torch. Inputs are secret and other shapes are tried too, so write for all of them. After each
answer you are told whether it is right, how fast it is, and what holds it back. Change one thing at a time."""
ANSWER_LIMIT_S = 600
Message = dict[str, str]


def ask_model(messages: list[Message]) -> str:
    """The model's next words; raises `Stop` where the API does not answer, at 429 and 503 after it was asked again."""
    url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1").rstrip("/") + "/chat/completions"
    body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": messages}).encode()
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}"}
    try:
        request = urllib.request.Request(url, body, head)
        with patiently(lambda: urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S)) as answer:
            return str(json.load(answer)["choices"][0]["message"]["content"])
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise Stop(f"{url} gave no answer: {error}") from None


def split(answer: str) -> tuple[str, str]:
    """The hypothesis and the source in an answer; without a block the source is empty."""
    block = re.search(r"```(?:python|py)?\n(.*?)```", answer, re.DOTALL)
    words = " ".join((answer[: block.start()] if block else answer).split())
    return words[:500], block[1] if block else ""


def told(reply: dict[str, Any]) -> str:
    """What the model is told of its candidate: the verdict, and the findings or the log that explain it."""
    report = reply.get("last_report") or reply.get("report", {})
    findings = [f"{one['evidence']}. Try: {one['change']}" for one in report.get("findings", [])]
    return "\n".join([f"{reply['rung']}: {reply['summary']}", *findings, report.get("log", "")[-2000:]]).strip()


async def climb(client: Client, reply: dict[str, Any]) -> str:
    """Take precise_time and profile where the reply allows them; all that was found."""
    found = [told(reply)]
    for tool in ("precise_time", "profile"):
        own = {"candidate_id": reply["candidate_id"]}
        steps = [step for step in reply.get("next_steps", []) if step["tool"] == tool and step["arguments"] == own]
        if any(step["allowed"] for step in steps):
            reply = await call(client, tool, **own)
            found.append(told(reply))
    return "\n".join(found)


async def optimise(task: str, rounds: int, client: Client) -> None:
    """Ask, measure, tell; until the rounds are over or the server advises to stop."""
    reference = (await call(client, "get_task", task=task))["source"]
    run = (await call(client, "start_run", task=task))["run"]
    asked = f"The device is {run['device']}. The reference:\n{reference}"
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": asked}]
    for number in range(1, rounds + 1):
        answer = await anyio.to_thread.run_sync(partial(ask_model, messages))
        note, source = split(answer)
        found, advice = "There was no Python block in your answer.", ""
        if source:
            reply = await call(client, "compile", run_id=run["run_id"], source=source, note=note, up_to="quick_time")
            found, advice = await climb(client, reply), reply.get("stop_advice", "")
        print(f"{number}. {note}\n   {found}\n")
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": found}]
        if advice:
            print(f"stopping: {advice}")
            break
    best = (await call(client, "list_candidates", run_id=run["run_id"], limit=1))["candidates"]
    print(f"best of run {run['run_id']}: {json.dumps(best)}")


if __name__ == "__main__":
    own, serve = parted(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args(own)
    if "OPENAI_MODEL" not in os.environ:
        sys.exit("name the model: OPENAI_MODEL; where its API is: OPENAI_BASE_URL; the key: OPENAI_API_KEY")
    play(partial(optimise, given.task, given.rounds), serve)
